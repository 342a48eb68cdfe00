// Which ranks a process carries, and what it tells them.
#include "lockstep/launch/process/spawn_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "environments.h"

namespace lockstep::launch {
namespace {

using test::operator+;

TEST(Carry, BlocksAreEvenInOrderAndWhole) {
  for (const int ranks : {1, 3, 5, 8, 64}) {
    for (const int processes : {1, 2, 3, 5, 8, 9}) {
      int next = 0, most = 0, least = ranks;
      for (int i = 0; i < processes; ++i) {
        const auto block = block_of(i, processes, ranks);
        EXPECT_EQ(block.first, next) << i << " of " << processes << ", " << ranks << " ranks";
        next += block.count;
        most = std::max(most, block.count), least = std::min(least, block.count);
      }
      EXPECT_EQ(next, ranks);
      EXPECT_LE(most - least, 1);
    }
  }
  EXPECT_EQ(blocks_text(3, 8), "3+3+2");
  EXPECT_EQ(blocks_text(4, 3), "1+1+1+0");
}

// What a carried rank finds in its environment, over that of whatever started the process.
Environment environment_of(const Job& job, int rank, int world, const Environment& outer) {
  Environment environment = outer;
  for (const auto& setting : settings_of_spawned(job, rank, world, block_of(job.rank, job.world, world))) {
    const auto equals = setting.find('=');
    environment[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return environment;
}

TEST(Carry, ACarriedRankIsWhatItsProcessSaysWhateverStartedThat) {
  for (const auto& outer : {test::kTorchrun, test::kOpenMpi, test::kHydra, test::kSrun}) {
    const Job job{.rank = 1, .world = 4, .nodes = 2};
    for (const char* choice : {"auto", "openmpi", "none", "slurm"}) {
      const auto own = identify(environment_of(job, 3, 8, outer), std::nullopt, choice, {.host = "n1"});
      EXPECT_EQ(own.rank, 3);
      EXPECT_EQ(own.world, 8);
      EXPECT_EQ(own.launcher, "as_world");
      EXPECT_FALSE(wants_mpi(environment_of(job, 3, 8, outer), choice));
    }
  }
}

TEST(Carry, OnOneNodeARankIsToldItsPlace) {
  const Job job{.rank = 0, .world = 1, .nodes = 1};
  const auto own = identify(environment_of(job, 2, 3, {}), std::nullopt, "auto", {.host = "n1"});
  EXPECT_EQ(own.local_rank, 2);
  EXPECT_EQ(own.local_world, 3);
  EXPECT_TRUE(own.guessed.empty() && own.warnings.empty());
}

TEST(Carry, OnSeveralNodesItFindsOutWhenTheRanksMeet) {
  const Job job{.rank = 1, .world = 2, .node_rank = 1, .nodes = 2};
  const auto own = identify(environment_of(job, 4, 5, {}), std::nullopt, "auto", {.host = "n2"});
  EXPECT_EQ(own.node_rank, 1);
  EXPECT_TRUE(std::ranges::count(own.guessed, "local_rank") == 1);
  const Job unsure{.rank = 1, .world = 2, .nodes = 1, .guessed = {"nodes", "local_world"}};
  const auto other = identify(environment_of(unsure, 4, 5, {}), std::nullopt, "auto", {.host = "n2"});
  EXPECT_TRUE(std::ranges::count(other.guessed, "nodes") == 1);
}

TEST(Carry, OnlyWhoIsCarriedIsMadeSo) {
  EXPECT_THROW(identify({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, std::nullopt, "as_world"), InputError);
  EXPECT_THROW(check_environment({{"LOCKSTEP_RANK", "1"}}, "auto"), InputError);  // half a pair
}

}  // namespace
}  // namespace lockstep::launch
