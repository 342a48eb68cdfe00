// Values that cannot be, and environments that no launcher would set: an error or a Job, never a crash.
#include <random>

#include "environments.h"

namespace lockstep {
using namespace test;

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
  EXPECT_TRUE(
      holds(refusal(kTorchrun + launch::Environment{{"RANK", "4"}}), {"RANK=4 lies outside WORLD_SIZE=4"}));
  EXPECT_TRUE(holds(refusal(kTorchrun + launch::Environment{{"LOCAL_RANK", "2"}}),
                    {"LOCAL_RANK=2 lies outside LOCAL_WORLD_SIZE=2"}));
  EXPECT_TRUE(holds(refusal(kTorchrun + launch::Environment{{"LOCAL_WORLD_SIZE", "5"}}),
                    {"LOCAL_WORLD_SIZE=5 is more than WORLD_SIZE=4"}));
  EXPECT_TRUE(
      holds(refusal(kSrun + launch::Environment{{"SLURM_NODEID", "2"}}), {"SLURM_NODEID=2 lies outside"}));
  EXPECT_TRUE(holds(refusal(kSrun + launch::Environment{{"SLURM_PROCID", "9"}}),
                    {"SLURM_PROCID=9 lies outside SLURM_STEP_NUM_TASKS=4"}));
}

TEST(Values, ANodeThatThereCannotBeIsRefused) {
  const launch::Environment by_hand = {
      {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_TRUE(holds(refusal(by_hand + launch::Environment{{"GROUP_RANK", "2147483647"}}),
                    {"GROUP_RANK=2147483647 lies outside"}));
  // unequal nodes, their number not told: two of one rank and this one of two
  EXPECT_EQ(launch::identify(by_hand + launch::Environment{{"GROUP_RANK", "2"}}, std::nullopt).nodes, 3);
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
  EXPECT_TRUE(
      holds(refusal(kTorchrun + launch::Environment{{"WORLD_SIZE", "0"}}), {"WORLD_SIZE=0", "from 1"}));
}

TEST(Values, StepCountsThatContradictEachOtherAreRefused) {
  const auto with = [](const char* counts) {
    return kSrun + launch::Environment{{"SLURM_STEP_TASKS_PER_NODE", counts}};
  };
  for (const char* counts : {"2(x3)", "2,3"}) {
    EXPECT_TRUE(holds(refusal(with(counts)), {counts, "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_NODES=2"}));
  }
  EXPECT_TRUE(holds(refusal(with("3,1")), {"SLURM_LOCALID=1 lies outside"}));
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
  const launch::Environment everyone =
      kTorchrun + kOpenMpi + kPals + kHydra + kFlux + kJsrun + kSrun + kPbs +
      launch::Environment{{"PBS_NP", "4"}, {"PBS_VNODENUM", "1"}, {"PBS_NUM_PPN", "2"}};
  const std::string values[] = {"0",  "1", "2",     "3",   "4",          "7",   "",
                                "-1", "x", "2(x2)", "3,1", "4294967296", "1(x", "n[1-2]"};
  const auto choices = launch::launcher_choices();
  std::mt19937 random(20240601);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int jobs = 0;
  for (int round = 0; round < 20'000; ++round) {
    launch::Environment environment;
    const size_t density = 1 + pick(8);
    for (const auto& [name, value] : everyone) {
      if (pick(density) == 0) environment[name] = pick(3) ? value : values[pick(std::size(values))];
    }
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
