// The traps that were measured on real clusters, each with the environment it was seen in.
#include "environments.h"

namespace lockstep {
using namespace test;

TEST(Traps, AnSbatchScriptWithoutSrunIsAPhantom) {
  EXPECT_FALSE(wants_mpi(kSbatch));
  EXPECT_TRUE(holds(refusal(kSbatch),
                    {"started alone", "4 tasks", "SLURM_NTASKS=4", "srun or mpirun", "--launcher none"}));
  EXPECT_EQ(identify(kSbatch, std::nullopt, "none").world, 1);
}

TEST(Traps, ACommandThatJoinsNoGroupIsToldOfThePhantom) {
  const Job job = identify(kSbatch, std::nullopt, "auto", {}, Phantoms::allow);
  EXPECT_EQ(job.world, 1);
  EXPECT_TRUE(holds(job.phantom, {"SLURM_NTASKS=4"}));
  ASSERT_EQ(job.warnings.size(), 1U);
  EXPECT_TRUE(holds(job.warnings[0], {"srun or mpirun"}));
}

TEST(Traps, AnSbatchScriptOfOneTaskIsAlone) {
  const Environment one = kSbatch + Environment{{"SLURM_NTASKS", "1"}, {"SLURM_JOB_NUM_NODES", "1"}};
  EXPECT_EQ(identify(one, std::nullopt).world, 1);
}

TEST(Traps, TwoNodesAskedForWithoutATaskCountIsAPhantom) {
  const Environment nodes = without(kSbatch, {"SLURM_NTASKS", "SLURM_NPROCS"});
  EXPECT_TRUE(holds(refusal(nodes), {"2 tasks", "SLURM_JOB_NUM_NODES=2"}));
}

TEST(Traps, MpirunInsideSbatchIsOpenMpiAndNotSlurm) {
  // the daemons are a Slurm step of their own: one task a node, so every rank inherits procid 0
  const Environment inside = kSbatch + kOpenMpi +
                             Environment{{"SLURM_PROCID", "0"},
                                         {"SLURM_STEP_NUM_TASKS", "2"},
                                         {"SLURM_STEP_NUM_NODES", "2"},
                                         {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                         {"SLURM_STEP_ID", "0"}};
  const Job job = identify(inside, std::nullopt);
  EXPECT_EQ(job.launcher, "openmpi");
  EXPECT_EQ(job.scheduler, "slurm");
  EXPECT_EQ(job.rank, 3);
  EXPECT_EQ(job.world, 4);
  const MpiFacts facts{.rank = 3, .world = 4, .local_rank = 1, .local_world = 2, .node_rank = 1, .nodes = 2};
  EXPECT_EQ(identify(inside, facts).rank, 3);
}

TEST(Traps, StaleJobVariablesDoNotTouchAStep) {
  // srun -n2 -E inside a 4-task job
  const Environment step =
      kSrun + Environment{{"SLURM_PROCID", "1"},         {"SLURM_STEP_NUM_TASKS", "2"},
                          {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                          {"SLURM_LOCALID", "0"},        {"SLURM_NTASKS", "4"},
                          {"SLURM_NTASKS_PER_NODE", "2"}};
  const Job job = identify(step, std::nullopt);
  EXPECT_EQ(job.world, 2);
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.local_world, 1);
}

TEST(Traps, ASallocShellIsAPhantomAndItsNameMeansNothing) {
  const Environment shell = without(kSbatch, {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"}) +
                            Environment{{"SLURM_JOB_NAME", "interactive"}};
  EXPECT_TRUE(holds(refusal(shell), {"4 tasks", "srun"}));
  EXPECT_EQ(identify(kSrun + Environment{{"SLURM_JOB_NAME", "interactive"}}, std::nullopt).world, 4);
}

TEST(Traps, TheShellOfAnInteractiveStepIsAPhantomToo) {
  const Environment shell = kSbatch + Environment{{"SLURM_STEP_ID", "4294967290"},
                                                  {"SLURM_STEP_NUM_TASKS", "1"},
                                                  {"SLURM_STEP_NUM_NODES", "1"},
                                                  {"SLURM_STEP_TASKS_PER_NODE", "1"}};
  EXPECT_TRUE(holds(refusal(shell), {"4 tasks", "srun"}));
}

TEST(Traps, OpenMpi5UnderSrunWithoutPmixIsNotCalledAtAll) {
  EXPECT_FALSE(wants_mpi(kSrun));
  EXPECT_EQ(identify(kSrun, std::nullopt).world, 4);
}

TEST(Traps, NTimesRankZeroOfOneIsNamed) {
  // PMIx variables are there, but this MPI has no PMIx: it says "0 of 1" in every task (ompi#13523)
  const Environment pmix = kSrun + Environment{{"PMIX_RANK", "3"}};
  EXPECT_TRUE(holds(refusal(pmix, MpiFacts{.library = "Open MPI v5.0.3"}),
                    {"rank 0 of 1", "SLURM_STEP_NUM_TASKS=4", "4 processes", "--mpi=pmix"}));
  EXPECT_TRUE(holds(refusal(kSrun, MpiFacts{}, "mpi"), {"rank 0 of 1", "4 tasks"}));
  const MpiFacts good{.rank = 3, .world = 4, .local_rank = 1, .local_world = 2, .node_rank = 1, .nodes = 2};
  EXPECT_EQ(identify(pmix, good).world, 4);
}

TEST(Traps, AnotherMpisMpirunIsNamed) {
  // built with MPICH, started by Open MPI's mpirun
  const std::string text = refusal(kOpenMpi, MpiFacts{.library = "MPICH Version: 4.0.2"});
  EXPECT_TRUE(holds(text, {"OMPI_COMM_WORLD_RANK=3", "MPI says 0", "4 processes would each be rank 0 of 1",
                           "MPICH Version: 4.0.2"}));
}

TEST(Traps, LeakedPalsOrPmiIsADisagreementThatNamesBoth) {
  // a shell that PALS started as one rank, and Hydra's mpiexec inside it
  const Environment leak =
      kHydra + Environment{{"PALS_RANKID", "0"}, {"PALS_SIZE", "1"}, {"PALS_NODEID", "0"}};
  const MpiFacts facts{.rank = 2, .world = 4, .local_rank = 0, .local_world = 2, .node_rank = 1, .nodes = 2};
  EXPECT_TRUE(holds(refusal(leak, facts),
                    {"pals says rank is 0", "PALS_RANKID=0", "MPI says 2", "unset", "PALS_SIZE"}));
  EXPECT_EQ(identify(leak, facts, "pmi").rank, 2);
  // Open MPI's own variables come first, so a leak below them is harmless
  const MpiFacts ompi{.rank = 3, .world = 4, .local_rank = 1, .local_world = 2, .node_rank = 1, .nodes = 2};
  EXPECT_EQ(identify(kOpenMpi + kPals, ompi).launcher, "openmpi");
}

TEST(Traps, MpiAgainstTheEnvironmentNamesBoth) {
  MpiFacts facts{.rank = 3, .world = 4, .local_rank = 1, .local_world = 2, .node_rank = 1, .nodes = 2};
  EXPECT_EQ(refusal(kOpenMpi, facts), "");
  facts.rank = 2;
  EXPECT_TRUE(holds(refusal(kOpenMpi, facts), {"rank is 3", "OMPI_COMM_WORLD_RANK=3", "MPI says 2"}));
  facts = {.rank = 3, .world = 8, .local_rank = 1, .local_world = 2};
  EXPECT_TRUE(holds(refusal(kOpenMpi, facts), {"world is 4", "MPI says 8"}));
  facts = {.rank = 3, .world = 4, .local_rank = 3, .local_world = 4};
  EXPECT_TRUE(holds(refusal(kOpenMpi, facts), {"local_rank is 1", "MPI says 3"}));
}

TEST(Traps, NodesInAnotherOrderAreAWarning) {
  const MpiFacts facts{.rank = 5, .world = 8, .local_rank = 1, .local_world = 4, .node_rank = 0, .nodes = 2};
  const Job job = identify(kPals, facts);
  EXPECT_EQ(job.node_rank, 0);
  ASSERT_EQ(job.warnings.size(), 1U);
  EXPECT_TRUE(holds(job.warnings[0], {"PALS_NODEID=1", "MPI says 0"}));
}

TEST(Traps, ForcedSlurmDoesWithoutAnMpiThatWouldAbort) {
  // srun --mpi=pmi2 and an Open MPI that was not built for it
  const Environment pmi2 = kSrun + Environment{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_FD", "9"}};
  EXPECT_TRUE(wants_mpi(pmi2));
  EXPECT_FALSE(wants_mpi(pmi2, "slurm"));
  EXPECT_TRUE(wants_mpi(kSrun + Environment{{"PMIX_RANK", "3"}}, "slurm"));
}

TEST(Traps, APbsJobOfSeveralRanksStartedAloneIsAPhantom) {
  const Surroundings around{.host = "n1", .node_file = kPbsNodeFile};
  EXPECT_TRUE(holds(refusal(kPbs, {}, "auto", around),
                    {"PBS_NODEFILE has 4 lines for 2 hosts", "mpirun or mpiexec"}));
  EXPECT_EQ(identify(kPbs, std::nullopt, "none", around).world, 1);
  const Surroundings one{.host = "n1", .node_file = "n1\n"};
  const Job job = identify(kPbs, std::nullopt, "auto", one);
  EXPECT_EQ(job.world, 1);
  EXPECT_EQ(job.scheduler, "pbs");
  EXPECT_EQ(job.job_id, "7.server");
  EXPECT_TRUE(job.warnings.empty());
}

TEST(Traps, MpirunInsidePbsIsNoPhantom) {
  const Surroundings around{.host = "n1", .node_file = kPbsNodeFile};
  EXPECT_EQ(identify(kPbs + kOpenMpi, std::nullopt, "auto", around).rank, 3);
}

TEST(Traps, ATaskOfPbsdshIsAPhantom) {
  // no node file, a fresh environment, and only the host's index
  const Environment task = {{"PBS_JOBID", "7.server"}, {"PBS_NODENUM", "1"}, {"PBS_TASKNUM", "3"}};
  EXPECT_TRUE(holds(refusal(task), {"PBS_NODENUM=1", "mpirun"}));
  const Environment on_the_first_host = {
      {"PBS_JOBID", "7.server"}, {"PBS_NODENUM", "0"}, {"PBS_TASKNUM", "3"}};
  EXPECT_TRUE(holds(refusal(on_the_first_host), {"PBS_TASKNUM=3", "mpirun"}));
}

TEST(Traps, LinesThatAreCoresAreNoRanks) {
  const Surroundings around{.host = "gadi1", .node_file = "gadi1\ngadi1\ngadi1\ngadi1\n"};
  const Job gadi =
      identify(kPbs + Environment{{"PBS_NCPUS", "4"}, {"PBS_NGPUS", "1"}}, std::nullopt, "auto", around);
  EXPECT_EQ(gadi.world, 1);
  EXPECT_EQ(gadi.warnings.size(), 1U);
  const Environment torque = {{"PBS_JOBID", "8.t"},   {"PBS_NP", "4"},       {"PBS_NUM_PPN", "4"},
                              {"PBS_NUM_NODES", "1"}, {"PBS_VNODENUM", "0"}, {"PBS_NODENUM", "0"}};
  const Job job = identify(torque, std::nullopt, "auto", around);
  EXPECT_EQ(job.scheduler, "torque");
  EXPECT_EQ(job.warnings.size(), 1U);
  EXPECT_TRUE(holds(refusal(torque, {}, "auto", {.host = "a", .node_file = "a\na\nb\nb\n"}), {"2 hosts"}));
}

TEST(Traps, OneMpiRankOnPurposeInsideABigJobIsFine) {
  const Environment one = kSbatch + Environment{{"OMPI_COMM_WORLD_RANK", "0"},
                                                {"OMPI_COMM_WORLD_SIZE", "1"},
                                                {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  EXPECT_EQ(identify(one, MpiFacts{}).world, 1);
}

}  // namespace lockstep
