// The traps that were measured on real clusters, each with the environment it was seen in.
#include "environments.h"

#include <random>

namespace lockstep {
using namespace test;

TEST(Traps, OneProcessOfAJobForSeveralIsAPhantom) {
  const struct {
    const char* what;
    launch::Environment environment;
    std::vector<const char*> said;
  } cases[] = {{"an sbatch script without srun",
                kSbatch,
                {"started alone", "4 tasks", "SLURM_NTASKS=4", "srun or mpirun", "--launcher none"}},
               {"two nodes without a number of tasks",
                without(kSbatch, {"SLURM_NTASKS", "SLURM_NPROCS"}),
                {"2 tasks", "SLURM_JOB_NUM_NODES=2"}},
               {"a shell of salloc",
                without(kSbatch, {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"}) +
                    env("SLURM_JOB_NAME=interactive"),
                {"4 tasks", "srun"}},
               {"the shell of an interactive step",
                kSbatch + env("SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NUM_NODES=1 "
                              "SLURM_STEP_TASKS_PER_NODE=1"),
                {"4 tasks", "srun"}},
               // no node file, a fresh environment, and only the host's index
               {"a task of pbsdsh",
                env("PBS_JOBID=7.server PBS_NODENUM=1 PBS_TASKNUM=3"),
                {"PBS_NODENUM=1", "mpirun"}},
               {"a task of pbsdsh on the first host",
                env("PBS_JOBID=7.server PBS_NODENUM=0 PBS_TASKNUM=3"),
                {"PBS_TASKNUM=3", "mpirun"}}};
  for (const auto& [what, environment, said] : cases) {
    EXPECT_TRUE(holds(refusal(environment), said)) << what;
    EXPECT_EQ(launch::identify(environment, std::nullopt, "none").world, 1) << what;
  }
  EXPECT_FALSE(launch::wants_mpi(kSbatch));
}

TEST(Traps, OneTaskOrAStepIsNoPhantom) {
  const launch::Environment one = kSbatch + env("SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1");
  EXPECT_EQ(launch::identify(one, std::nullopt).world, 1);
  const auto of_that_name = kSrun + env("SLURM_JOB_NAME=interactive");
  EXPECT_EQ(launch::identify(of_that_name, std::nullopt).world, 4);
  const auto one_of_mpi =
      kSbatch + env("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 "
                    "OMPI_COMM_WORLD_LOCAL_SIZE=1");
  EXPECT_EQ(launch::identify(one_of_mpi, launch::MpiFacts{}).world, 1) << "on purpose";
}

TEST(Traps, ACommandThatJoinsNoGroupIsToldOfThePhantom) {
  const Job job = launch::identify(kSbatch, std::nullopt, "auto", {}, launch::Phantoms::allow);
  EXPECT_EQ(job.world, 1);
  EXPECT_TRUE(holds(job.phantom, {"SLURM_NTASKS=4"}));
  EXPECT_TRUE(holds(job.phantom_hint, {"srun or mpirun"}));
  EXPECT_TRUE(job.warnings.empty());
}

TEST(Traps, MpirunInsideSbatchIsOpenMpiAndNotSlurm) {
  // the daemons are a Slurm step of their own: one task a node, so every rank inherits procid 0
  const launch::Environment inside =
      kSbatch + kOpenMpi +
      env("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=1(x2) "
          "SLURM_STEP_ID=0");
  const Job job = launch::identify(inside, std::nullopt);
  EXPECT_EQ(job.launcher, "openmpi");
  EXPECT_EQ(job.scheduler, "slurm");
  EXPECT_EQ(job.rank, 3);
  EXPECT_EQ(job.world, 4);
  EXPECT_EQ(launch::identify(inside, kFourthOfFour).rank, 3);
}

TEST(Traps, StaleJobVariablesDoNotTouchAStep) {
  // srun -n2 -E inside a 4-task job
  const launch::Environment step =
      kSrun +
      env("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=1(x2) "
          "SLURM_LOCALID=0 SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2");
  const Job job = launch::identify(step, std::nullopt);
  EXPECT_EQ(job.world, 2);
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.local_world, 1);
}

TEST(Traps, NTimesRankZeroOfOneIsNamed) {
  // PMIx variables are there, but this MPI has no PMIx: it says "0 of 1" in every task (ompi#13523)
  const launch::Environment pmix = kSrun + env("PMIX_RANK=3");
  EXPECT_TRUE(holds(refusal(pmix, launch::MpiFacts{.library = "Open MPI v5.0.3"}),
                    {"rank 0 of 1", "SLURM_STEP_NUM_TASKS=4", "4 processes", "--mpi=pmix"}));
  EXPECT_TRUE(holds(refusal(kSrun, launch::MpiFacts{}, "mpi"), {"rank 0 of 1", "4 processes"}));
  EXPECT_EQ(launch::identify(pmix, kFourthOfFour).world, 4);
}

TEST(Traps, AnotherMpisMpirunIsNamed) {
  // built with MPICH, started by Open MPI's mpirun
  const std::string text = refusal(kOpenMpi, launch::MpiFacts{.library = "MPICH Version: 4.0.2"});
  EXPECT_TRUE(holds(text, {"OMPI_COMM_WORLD_RANK=3", "MPI says 0", "4 processes would each be rank 0 of 1",
                           "MPICH Version: 4.0.2"}));
}

TEST(Traps, LeakedPalsOrPmiIsADisagreementThatNamesBoth) {
  // a shell that PALS started as one rank, and Hydra's mpiexec inside it
  const launch::Environment leak = kHydra + env("PALS_RANKID=0 PALS_SIZE=1 PALS_NODEID=0");
  const launch::MpiFacts facts{
      .rank = 2, .world = 4, .local_rank = 0, .local_world = 2, .node_rank = 1, .nodes = 2};
  EXPECT_TRUE(holds(refusal(leak, facts),
                    {"pals says rank is 0", "PALS_RANKID=0", "MPI says 2", "unset", "PALS_SIZE"}));
  EXPECT_EQ(launch::identify(leak, facts, "pmi").rank, 2);
  // Open MPI's own variables come first, so a leak below them is harmless
  EXPECT_EQ(launch::identify(kOpenMpi + kPals, kFourthOfFour).launcher, "openmpi");
}

TEST(Traps, MpiAgainstTheEnvironmentNamesBoth) {
  auto facts = kFourthOfFour;
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
  const launch::Environment pmi2 = kSrun + env("PMI_RANK=3 PMI_SIZE=4 PMI_FD=9");
  EXPECT_TRUE(launch::wants_mpi(pmi2));
  EXPECT_FALSE(launch::wants_mpi(pmi2, "slurm"));
  EXPECT_TRUE(launch::wants_mpi(kSrun + env("PMIX_RANK=3"), "slurm"));
}

TEST(Traps, APbsJobOfSeveralRanksStartedAloneIsAPhantom) {
  const launch::HostFacts around{.host = "n1", .node_file = kPbsNodeFile};
  EXPECT_TRUE(holds(refusal(kPbs, {}, "auto", around),
                    {"PBS_NODEFILE has 4 lines for 2 hosts", "mpirun or mpiexec"}));
  EXPECT_EQ(launch::identify(kPbs, std::nullopt, "none", around).world, 1);
  EXPECT_EQ(launch::identify(kPbs + kOpenMpi, std::nullopt, "auto", around).rank, 3) << "of mpirun";
  const launch::HostFacts one{.host = "n1", .node_file = "n1\n"};
  const Job job = launch::identify(kPbs, std::nullopt, "auto", one);
  EXPECT_EQ(job.world, 1);
  EXPECT_EQ(job.scheduler, "pbs");
  EXPECT_EQ(job.job_id, "7.server");
  EXPECT_TRUE(job.warnings.empty());
}

TEST(Traps, AWorldOfOneLeftBehindBelowMpirunOrSrunIsAPhantom) {
  const launch::Environment alone = env("RANK=0 WORLD_SIZE=1");
  EXPECT_TRUE(holds(refusal(kSrun + alone), {"WORLD_SIZE=1", "SLURM_STEP_NUM_TASKS=4", "--launcher slurm"}));
  EXPECT_EQ(launch::identify(kSrun + alone, std::nullopt, "none", {}).world, 1);
  const auto left = kOpenMpi + alone;
  EXPECT_TRUE(holds(refusal(left), {"WORLD_SIZE=1", "OMPI_COMM_WORLD_SIZE=4", "unset RANK and WORLD_SIZE"}));
  EXPECT_EQ(launch::identify(left, std::nullopt, "torchrun", {}).world, 1);
  const auto meant = left + env("TORCHELASTIC_RUN_ID=none");
  EXPECT_EQ(launch::identify(meant, std::nullopt, "auto", {}).world, 1);
}

TEST(Traps, OneRankLeftBehindForAllBelowMpirunOrSrunIsAPhantom) {
  const launch::Environment first = env("RANK=0 WORLD_SIZE=4 MASTER_ADDR=n1");
  EXPECT_TRUE(holds(refusal(kOpenMpi + first),
                    {"RANK=0", "OMPI_COMM_WORLD_RANK=3", "unset RANK and WORLD_SIZE", "--launcher openmpi"}));
  EXPECT_TRUE(holds(refusal(kSrun + first), {"RANK=0", "SLURM_PROCID=3", "--launcher slurm"}));
  EXPECT_EQ(launch::identify(kOpenMpi + first, std::nullopt, "torchrun", {}).rank, 0);
  const launch::Environment translated = env("RANK=3 WORLD_SIZE=4");
  EXPECT_EQ(launch::identify(kOpenMpi + translated, std::nullopt, "auto", {}).rank, 3);
  // mpirun's daemons are a step of as many tasks
  const launch::Environment daemon = env("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4");
  EXPECT_EQ(launch::identify(kOpenMpi + daemon + translated, std::nullopt, "auto", {}).rank, 3);
  // a wrapper in each task that starts two ranks
  const launch::Environment more = env("RANK=6 WORLD_SIZE=8");
  EXPECT_EQ(launch::identify(kSrun + more, std::nullopt, "auto", {}).rank, 6);
}

TEST(Traps, LinesThatAreCoresAreNoRanks) {
  const launch::HostFacts around{.host = "gadi1", .node_file = "gadi1\ngadi1\ngadi1\ngadi1\n"};
  const Job gadi = launch::identify(kPbs + env("PBS_NCPUS=4 PBS_NGPUS=1"), std::nullopt, "auto", around);
  EXPECT_EQ(gadi.world, 1);
  EXPECT_EQ(gadi.warnings.size(), 1U);
  const launch::Environment torque =
      env("PBS_JOBID=8.t PBS_NP=4 PBS_NUM_PPN=4 PBS_NUM_NODES=1 PBS_VNODENUM=0 PBS_NODENUM=0");
  const Job job = launch::identify(torque, std::nullopt, "auto", around);
  EXPECT_EQ(job.scheduler, "torque");
  EXPECT_EQ(job.warnings.size(), 1U);
  EXPECT_TRUE(holds(refusal(torque, {}, "auto", {.host = "a", .node_file = "a\na\nb\nb\n"}), {"2 hosts"}));
}

// Values that cannot be, and environments that no launcher would set: an error or a Job, never a crash.

TEST(Values, HalfAPairIsRefused) {
  EXPECT_TRUE(
      holds(refusal({{"RANK", "0"}}), {"RANK=0 is set but WORLD_SIZE is not", "unset RANK", "torchrun"}));
  EXPECT_TRUE(holds(refusal({{"WORLD_SIZE", "2"}}), {"WORLD_SIZE=2 is set but RANK is not"}));
  EXPECT_TRUE(holds(refusal(without(kOpenMpi, {"OMPI_COMM_WORLD_SIZE"})), {"OMPI_COMM_WORLD_SIZE is not"}));
  EXPECT_TRUE(holds(refusal(without(kSrun, {"SLURM_PROCID"})), {"SLURM_PROCID is not"}));
  EXPECT_TRUE(holds(refusal({{"PALS_SIZE", "4"}}), {"PALS_RANKID is not"}));
  EXPECT_TRUE(holds(refusal({{"PMI_RANK", "1"}}), {"PMI_SIZE is not"}));
}

TEST(Values, ARankOutsideItsWorldIsRefused) {
  EXPECT_TRUE(holds(refusal(kTorchrun + env("RANK=4")), {"RANK=4 must be less than WORLD_SIZE=4"}));
  EXPECT_TRUE(
      holds(refusal(kTorchrun + env("LOCAL_RANK=2")), {"LOCAL_RANK=2 must be less than LOCAL_WORLD_SIZE=2"}));
  EXPECT_TRUE(holds(refusal(kTorchrun + env("LOCAL_WORLD_SIZE=5")),
                    {"LOCAL_WORLD_SIZE=5 is more than WORLD_SIZE=4"}));
  EXPECT_TRUE(holds(refusal(kSrun + env("SLURM_NODEID=2")), {"SLURM_NODEID=2 must be less than"}));
  EXPECT_TRUE(holds(refusal(kSrun + env("SLURM_PROCID=9")),
                    {"SLURM_PROCID=9 must be less than SLURM_STEP_NUM_TASKS=4"}));
}

TEST(Values, ANodeThatThereCannotBeIsRefused) {
  const launch::Environment by_hand = env("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2");
  EXPECT_TRUE(
      holds(refusal(by_hand + env("GROUP_RANK=2147483647")), {"GROUP_RANK=2147483647 must be less than"}));
  // unequal nodes, their number not told: two of one rank and this one of two
  EXPECT_EQ(launch::identify(by_hand + env("GROUP_RANK=2"), std::nullopt).nodes, 3);
}

TEST(Values, WhatIsNoNumberIsRefused) {
  for (const char* value : {"", " ", "one", "1x", "0x1", "1.0", "+1", " 1", "1 ", "1\n", "-1", "-0",
                            "2147483648", "99999999999999999999", "1e3", "½"}) {
    SCOPED_TRACE(value);
    EXPECT_TRUE(holds(refusal(kTorchrun + launch::Environment{{"RANK", value}}),
                      {"RANK=", "is not a number", "unset RANK"}));
    EXPECT_TRUE(
        holds(refusal(kOpenMpi + launch::Environment{{"OMPI_COMM_WORLD_SIZE", value}}), {"is not a number"}));
  }
  EXPECT_TRUE(holds(refusal(kTorchrun + env("WORLD_SIZE=0")), {"WORLD_SIZE=0", "from 1"}));
}

TEST(Values, StepCountsThatContradictEachOtherAreRefused) {
  const auto with = [](const char* counts) {
    return kSrun + launch::Environment{{"SLURM_STEP_TASKS_PER_NODE", counts}};
  };
  for (const char* counts : {"2(x3)", "2,3"})
    EXPECT_TRUE(holds(refusal(with(counts)), {counts, "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_NODES=2"}));
  EXPECT_TRUE(holds(refusal(with("3,1")), {"SLURM_LOCALID=1 must be less than"}));
}

TEST(Values, TaskCountsOfAStepMayRepeat) {
  EXPECT_EQ(launch::parse_task_counts("4(x2),1,2(x1)"), (std::vector<int>{4, 4, 1, 2}));
  for (const char* text :
       {"", "0", "x", "2(x)", "2(x0)", "2(x2", "2(y2)", "2,,1", "2(x1000000000)", "-1", "(x2)", "2(x2)3"}) {
    EXPECT_THROW(launch::parse_task_counts(text), InputError) << text;
  }
}

// Random subsets of everybody's variables with random values: whatever comes out is a Job that can be, or an
// InputError with something to do.
TEST(Values, RandomEnvironmentsNeverCrash) {
  const launch::Environment everyone = kTorchrun + kOpenMpi + kPals + kHydra + kFlux + kJsrun + kSrun + kPbs +
                                       env("PBS_NP=4 PBS_VNODENUM=1 PBS_NUM_PPN=2");
  const std::string values[] = {"0",  "1", "2",     "3",   "4",          "7",   "",
                                "-1", "x", "2(x2)", "3,1", "4294967296", "1(x", "n[1-2]"};
  const auto choices = launch::launcher_choices();
  std::mt19937 random(20240601);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int jobs = 0;
  for (int round = 0; round < 20'000; ++round) {
    launch::Environment environment;
    const size_t density = 1 + pick(8);
    for (const auto& [name, value] : everyone)
      if (pick(density) == 0) environment[name] = pick(3) ? value : values[pick(std::size(values))];
    std::optional<launch::MpiFacts> facts;
    if (pick(4) == 0)
      facts = launch::MpiFacts{.rank = static_cast<int>(pick(4)), .world = 4, .local_world = 2, .nodes = 2};
    try {
      const Job job = launch::identify(environment, facts, pick(4) ? "auto" : choices[pick(choices.size())],
                                       {.host = "n1", .node_file = kPbsNodeFile}, launch::Phantoms::allow);
      ++jobs;
      ASSERT_TRUE(0 <= job.rank && job.rank < job.world);
      ASSERT_TRUE(0 <= job.local_rank && job.local_rank < job.local_world && job.local_world <= job.world);
      ASSERT_TRUE(0 <= job.node_rank && job.node_rank < job.nodes);
    } catch (const InputError& error) {
      ASSERT_FALSE(error.hint().empty()) << error.what();
    }
  }
  EXPECT_GT(jobs, 1000);  // the odds left something to check
}

}  // namespace lockstep
