// The traps that were measured on real clusters, each with the environment it was seen in.
#include "environments.h"

namespace lockstep {
using namespace test;

TEST(Traps, AnSbatchScriptWithoutSrunIsAPhantom) {
  EXPECT_FALSE(launch::wants_mpi(kSbatch));
  EXPECT_TRUE(holds(refusal(kSbatch),
                    {"started alone", "4 tasks", "SLURM_NTASKS=4", "srun or mpirun", "--launcher none"}));
  EXPECT_EQ(launch::identify(kSbatch, std::nullopt, "none").world, 1);
}

TEST(Traps, ACommandThatJoinsNoGroupIsToldOfThePhantom) {
  const Job job = launch::identify(kSbatch, std::nullopt, "auto", {}, launch::Phantoms::allow);
  EXPECT_EQ(job.world, 1);
  EXPECT_TRUE(holds(job.phantom, {"SLURM_NTASKS=4"}));
  EXPECT_TRUE(holds(job.phantom_hint, {"srun or mpirun"}));
  EXPECT_TRUE(job.warnings.empty());
}

TEST(Traps, AnSbatchScriptOfOneTaskIsAlone) {
  const launch::Environment one =
      kSbatch + launch::Environment{{"SLURM_NTASKS", "1"}, {"SLURM_JOB_NUM_NODES", "1"}};
  EXPECT_EQ(launch::identify(one, std::nullopt).world, 1);
}

TEST(Traps, TwoNodesAskedForWithoutATaskCountIsAPhantom) {
  const launch::Environment nodes = without(kSbatch, {"SLURM_NTASKS", "SLURM_NPROCS"});
  EXPECT_TRUE(holds(refusal(nodes), {"2 tasks", "SLURM_JOB_NUM_NODES=2"}));
}

TEST(Traps, MpirunInsideSbatchIsOpenMpiAndNotSlurm) {
  // the daemons are a Slurm step of their own: one task a node, so every rank inherits procid 0
  const launch::Environment inside = kSbatch + kOpenMpi +
                                     launch::Environment{{"SLURM_PROCID", "0"},
                                                         {"SLURM_STEP_NUM_TASKS", "2"},
                                                         {"SLURM_STEP_NUM_NODES", "2"},
                                                         {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                                         {"SLURM_STEP_ID", "0"}};
  const Job job = launch::identify(inside, std::nullopt);
  EXPECT_EQ(job.launcher, "openmpi");
  EXPECT_EQ(job.scheduler, "slurm");
  EXPECT_EQ(job.rank, 3);
  EXPECT_EQ(job.world, 4);
  const launch::MpiFacts facts{
      .rank = 3, .world = 4, .local_rank = 1, .local_world = 2, .node_rank = 1, .nodes = 2};
  EXPECT_EQ(launch::identify(inside, facts).rank, 3);
}

TEST(Traps, StaleJobVariablesDoNotTouchAStep) {
  // srun -n2 -E inside a 4-task job
  const launch::Environment step =
      kSrun + launch::Environment{{"SLURM_PROCID", "1"},         {"SLURM_STEP_NUM_TASKS", "2"},
                                  {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                  {"SLURM_LOCALID", "0"},        {"SLURM_NTASKS", "4"},
                                  {"SLURM_NTASKS_PER_NODE", "2"}};
  const Job job = launch::identify(step, std::nullopt);
  EXPECT_EQ(job.world, 2);
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.local_world, 1);
}

TEST(Traps, ASallocShellIsAPhantomAndItsNameMeansNothing) {
  const launch::Environment shell = without(kSbatch, {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"}) +
                                    launch::Environment{{"SLURM_JOB_NAME", "interactive"}};
  EXPECT_TRUE(holds(refusal(shell), {"4 tasks", "srun"}));
  EXPECT_EQ(
      launch::identify(kSrun + launch::Environment{{"SLURM_JOB_NAME", "interactive"}}, std::nullopt).world,
      4);
}

TEST(Traps, TheShellOfAnInteractiveStepIsAPhantomToo) {
  const launch::Environment shell = kSbatch + launch::Environment{{"SLURM_STEP_ID", "4294967290"},
                                                                  {"SLURM_STEP_NUM_TASKS", "1"},
                                                                  {"SLURM_STEP_NUM_NODES", "1"},
                                                                  {"SLURM_STEP_TASKS_PER_NODE", "1"}};
  EXPECT_TRUE(holds(refusal(shell), {"4 tasks", "srun"}));
}

TEST(Traps, OpenMpi5UnderSrunWithoutPmixIsNotCalledAtAll) {
  EXPECT_FALSE(launch::wants_mpi(kSrun));
  EXPECT_EQ(launch::identify(kSrun, std::nullopt).world, 4);
}

TEST(Traps, NTimesRankZeroOfOneIsNamed) {
  // PMIx variables are there, but this MPI has no PMIx: it says "0 of 1" in every task (ompi#13523)
  const launch::Environment pmix = kSrun + launch::Environment{{"PMIX_RANK", "3"}};
  EXPECT_TRUE(holds(refusal(pmix, launch::MpiFacts{.library = "Open MPI v5.0.3"}),
                    {"rank 0 of 1", "SLURM_STEP_NUM_TASKS=4", "4 processes", "--mpi=pmix"}));
  EXPECT_TRUE(holds(refusal(kSrun, launch::MpiFacts{}, "mpi"), {"rank 0 of 1", "4 processes"}));
  const launch::MpiFacts good{
      .rank = 3, .world = 4, .local_rank = 1, .local_world = 2, .node_rank = 1, .nodes = 2};
  EXPECT_EQ(launch::identify(pmix, good).world, 4);
}

TEST(Traps, AnotherMpisMpirunIsNamed) {
  // built with MPICH, started by Open MPI's mpirun
  const std::string text = refusal(kOpenMpi, launch::MpiFacts{.library = "MPICH Version: 4.0.2"});
  EXPECT_TRUE(holds(text, {"OMPI_COMM_WORLD_RANK=3", "MPI says 0", "4 processes would each be rank 0 of 1",
                           "MPICH Version: 4.0.2"}));
}

TEST(Traps, LeakedPalsOrPmiIsADisagreementThatNamesBoth) {
  // a shell that PALS started as one rank, and Hydra's mpiexec inside it
  const launch::Environment leak =
      kHydra + launch::Environment{{"PALS_RANKID", "0"}, {"PALS_SIZE", "1"}, {"PALS_NODEID", "0"}};
  const launch::MpiFacts facts{
      .rank = 2, .world = 4, .local_rank = 0, .local_world = 2, .node_rank = 1, .nodes = 2};
  EXPECT_TRUE(holds(refusal(leak, facts),
                    {"pals says rank is 0", "PALS_RANKID=0", "MPI says 2", "unset", "PALS_SIZE"}));
  EXPECT_EQ(launch::identify(leak, facts, "pmi").rank, 2);
  // Open MPI's own variables come first, so a leak below them is harmless
  const launch::MpiFacts ompi{
      .rank = 3, .world = 4, .local_rank = 1, .local_world = 2, .node_rank = 1, .nodes = 2};
  EXPECT_EQ(launch::identify(kOpenMpi + kPals, ompi).launcher, "openmpi");
}

TEST(Traps, MpiAgainstTheEnvironmentNamesBoth) {
  launch::MpiFacts facts{
      .rank = 3, .world = 4, .local_rank = 1, .local_world = 2, .node_rank = 1, .nodes = 2};
  EXPECT_EQ(refusal(kOpenMpi, facts), "");
  facts.rank = 2;
  EXPECT_TRUE(holds(refusal(kOpenMpi, facts), {"rank is 3", "OMPI_COMM_WORLD_RANK=3", "MPI says 2"}));
  facts = {.rank = 3, .world = 8, .local_rank = 1, .local_world = 2};
  EXPECT_TRUE(holds(refusal(kOpenMpi, facts), {"world is 4", "MPI says 8"}));
  facts = {.rank = 3, .world = 4, .local_rank = 3, .local_world = 4};
  EXPECT_TRUE(holds(refusal(kOpenMpi, facts), {"local_rank is 1", "MPI says 3"}));
}

TEST(Traps, NodesInAnotherOrderAreAWarning) {
  const launch::MpiFacts facts{
      .rank = 5, .world = 8, .local_rank = 1, .local_world = 4, .node_rank = 0, .nodes = 2};
  const Job job = launch::identify(kPals, facts);
  EXPECT_EQ(job.node_rank, 0);
  ASSERT_EQ(job.warnings.size(), 1U);
  EXPECT_TRUE(holds(job.warnings[0], {"PALS_NODEID=1", "MPI's 0"}));
}

TEST(Traps, ForcedSlurmDoesWithoutAnMpiThatWouldAbort) {
  // srun --mpi=pmi2 and an Open MPI that was not built for it
  const launch::Environment pmi2 =
      kSrun + launch::Environment{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_FD", "9"}};
  EXPECT_TRUE(launch::wants_mpi(pmi2));
  EXPECT_FALSE(launch::wants_mpi(pmi2, "slurm"));
  EXPECT_TRUE(launch::wants_mpi(kSrun + launch::Environment{{"PMIX_RANK", "3"}}, "slurm"));
}

TEST(Traps, APbsJobOfSeveralRanksStartedAloneIsAPhantom) {
  const launch::Surroundings around{.host = "n1", .node_file = kPbsNodeFile};
  EXPECT_TRUE(holds(refusal(kPbs, {}, "auto", around),
                    {"PBS_NODEFILE has 4 lines for 2 hosts", "mpirun or mpiexec"}));
  EXPECT_EQ(launch::identify(kPbs, std::nullopt, "none", around).world, 1);
  const launch::Surroundings one{.host = "n1", .node_file = "n1\n"};
  const Job job = launch::identify(kPbs, std::nullopt, "auto", one);
  EXPECT_EQ(job.world, 1);
  EXPECT_EQ(job.scheduler, "pbs");
  EXPECT_EQ(job.job_id, "7.server");
  EXPECT_TRUE(job.warnings.empty());
}

TEST(Traps, AWorldOfOneLeftBehindBelowMpirunOrSrunIsAPhantom) {
  const launch::Environment alone = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_TRUE(holds(refusal(kSrun + alone), {"WORLD_SIZE=1", "SLURM_STEP_NUM_TASKS=4", "--launcher slurm"}));
  EXPECT_EQ(launch::identify(kSrun + alone, std::nullopt, "none", {}).world, 1);
  const auto left = kOpenMpi + alone;
  EXPECT_TRUE(holds(refusal(left), {"WORLD_SIZE=1", "OMPI_COMM_WORLD_SIZE=4", "unset RANK and WORLD_SIZE"}));
  EXPECT_EQ(launch::identify(left, std::nullopt, "torchrun", {}).world, 1);
  const auto meant = left + launch::Environment{{"TORCHELASTIC_RUN_ID", "none"}};
  EXPECT_EQ(launch::identify(meant, std::nullopt, "auto", {}).world, 1);
}

TEST(Traps, OneRankLeftBehindForAllBelowMpirunOrSrunIsAPhantom) {
  const launch::Environment first = {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "n1"}};
  EXPECT_TRUE(holds(refusal(kOpenMpi + first),
                    {"RANK=0", "OMPI_COMM_WORLD_RANK=3", "unset RANK and WORLD_SIZE", "--launcher openmpi"}));
  EXPECT_TRUE(holds(refusal(kSrun + first), {"RANK=0", "SLURM_PROCID=3", "--launcher slurm"}));
  EXPECT_EQ(launch::identify(kOpenMpi + first, std::nullopt, "torchrun", {}).rank, 0);
  const launch::Environment translated = {{"RANK", "3"}, {"WORLD_SIZE", "4"}};
  EXPECT_EQ(launch::identify(kOpenMpi + translated, std::nullopt, "auto", {}).rank, 3);
  // mpirun's daemons are a step of as many tasks
  const launch::Environment daemon = {
      {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_EQ(launch::identify(kOpenMpi + daemon + translated, std::nullopt, "auto", {}).rank, 3);
  // a wrapper in each task that starts two ranks
  const launch::Environment more = {{"RANK", "6"}, {"WORLD_SIZE", "8"}};
  EXPECT_EQ(launch::identify(kSrun + more, std::nullopt, "auto", {}).rank, 6);
}

TEST(Traps, MpirunInsidePbsIsNoPhantom) {
  const launch::Surroundings around{.host = "n1", .node_file = kPbsNodeFile};
  EXPECT_EQ(launch::identify(kPbs + kOpenMpi, std::nullopt, "auto", around).rank, 3);
}

TEST(Traps, ATaskOfPbsdshIsAPhantom) {
  // no node file, a fresh environment, and only the host's index
  const launch::Environment task = {{"PBS_JOBID", "7.server"}, {"PBS_NODENUM", "1"}, {"PBS_TASKNUM", "3"}};
  EXPECT_TRUE(holds(refusal(task), {"PBS_NODENUM=1", "mpirun"}));
  const launch::Environment on_the_first_host = {
      {"PBS_JOBID", "7.server"}, {"PBS_NODENUM", "0"}, {"PBS_TASKNUM", "3"}};
  EXPECT_TRUE(holds(refusal(on_the_first_host), {"PBS_TASKNUM=3", "mpirun"}));
}

TEST(Traps, LinesThatAreCoresAreNoRanks) {
  const launch::Surroundings around{.host = "gadi1", .node_file = "gadi1\ngadi1\ngadi1\ngadi1\n"};
  const Job gadi = launch::identify(kPbs + launch::Environment{{"PBS_NCPUS", "4"}, {"PBS_NGPUS", "1"}},
                                    std::nullopt, "auto", around);
  EXPECT_EQ(gadi.world, 1);
  EXPECT_EQ(gadi.warnings.size(), 1U);
  const launch::Environment torque = {{"PBS_JOBID", "8.t"},   {"PBS_NP", "4"},       {"PBS_NUM_PPN", "4"},
                                      {"PBS_NUM_NODES", "1"}, {"PBS_VNODENUM", "0"}, {"PBS_NODENUM", "0"}};
  const Job job = launch::identify(torque, std::nullopt, "auto", around);
  EXPECT_EQ(job.scheduler, "torque");
  EXPECT_EQ(job.warnings.size(), 1U);
  EXPECT_TRUE(holds(refusal(torque, {}, "auto", {.host = "a", .node_file = "a\na\nb\nb\n"}), {"2 hosts"}));
}

TEST(Traps, OneMpiRankOnPurposeInsideABigJobIsFine) {
  const launch::Environment one = kSbatch + launch::Environment{{"OMPI_COMM_WORLD_RANK", "0"},
                                                                {"OMPI_COMM_WORLD_SIZE", "1"},
                                                                {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  EXPECT_EQ(launch::identify(one, launch::MpiFacts{}).world, 1);
}

}  // namespace lockstep
