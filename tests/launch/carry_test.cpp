// Which ranks a process carries, and what it tells them.
#include "lockstep/launch/process/spawn_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "environments.h"
#include "lockstep/launch/layout.h"

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
  for (const auto& setting : spawn_settings(job, rank, world, block_of(job.rank, job.world, world))) {
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
  EXPECT_THROW(identify(test::env("RANK=0 WORLD_SIZE=1"), std::nullopt, "as_world"), InputError);
  EXPECT_THROW(check_environment({{"LOCKSTEP_RANK", "1"}}, "auto"), InputError);  // half a pair
}

}  // namespace
}  // namespace lockstep::launch

namespace lockstep {
namespace {

launch::ReportedPlace on(const std::string& machine, std::optional<int> local_rank = {},
                         std::optional<int> local_world = {}, std::optional<int> node_rank = {}) {
  return {machine, local_rank, local_world, node_rank};
}

// "local rank/local world@node rank/nodes" of each rank
std::vector<std::string> layout(const std::vector<launch::ReportedPlace>& seats) {
  std::vector<std::string> texts;
  for (const auto& place : launch::layout_of(seats))
    texts.push_back(std::to_string(place.local_rank) + "/" + std::to_string(place.local_world) + "@" +
                    std::to_string(place.node_rank) + "/" + std::to_string(place.nodes));
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Layout, RanksOfOneMachineShareANode) {
  EXPECT_EQ(layout({on("a"), on("a")}), (Texts{"0/2@0/1", "1/2@0/1"}));
  EXPECT_EQ(layout({on("a", 0), on("b", 0)}), (Texts{"0/1@0/2", "0/1@1/2"}));
  EXPECT_EQ(layout({on("b"), on("a"), on("b")}), (Texts{"0/2@0/2", "0/1@1/2", "1/2@0/2"}))
      << "nodes are numbered by their first ranks, whatever their names";
}

TEST(Layout, NodesMayBeUneven) {
  EXPECT_EQ(layout({on("a", 0), on("a", 1), on("b", 0)}), (Texts{"0/2@0/2", "1/2@0/2", "0/1@1/2"}));
  EXPECT_EQ(layout({on("a", 0), on("b", 0), on("b", 1), on("b", 2)}),
            (Texts{"0/1@0/2", "0/3@1/2", "1/3@1/2", "2/3@1/2"}));
}

TEST(Layout, LaunchersNodesAreKept) {
  // two nodes of torchrun's on one machine, in its own order of local ranks
  EXPECT_EQ(layout({on("a", 1, 2, 0), on("a", 0, 2, 0), on("a", 0, 1, 1)}),
            (Texts{"1/2@0/2", "0/2@0/2", "0/1@1/2"}));
}

TEST(Layout, LocalRanksThatDoNotFitAreReplaced) {
  const auto places = launch::layout_of({on("a", 0), on("a", 0), on("b", 3)});
  EXPECT_EQ(places[1].local_rank, 1);
  EXPECT_TRUE(places[0].warning.empty());
  EXPECT_TRUE(test::holds(places[1].warning, {"local rank 0", "using 1"})) << places[1].warning;
  EXPECT_TRUE(test::holds(places[2].warning, {"local rank 3", "using 0"})) << places[2].warning;
}

TEST(Layout, AWrongLocalWorldIsAWarning) {
  const auto places = launch::layout_of({on("a", 0, 2), on("b", 0, 2)});
  EXPECT_EQ(places[0].local_world, 1);
  EXPECT_TRUE(test::holds(places[0].warning, {"2", "1"})) << places[0].warning;
}

// the commonest exports by hand: no LOCAL_WORLD_SIZE
TEST(Layout, TheMeetingReplacesWhatWasAssumed) {
  Job job = launch::identify(test::env("RANK=1 WORLD_SIZE=2 LOCAL_RANK=0"), std::nullopt);
  EXPECT_FALSE(launch::reported_place(job).local_world || launch::reported_place(job).node_rank);
  EXPECT_EQ(launch::reported_place(job).local_rank, 0);
  launch::set_place(job, launch::layout_of({on("a", 0), on("b", 0)})[1]);
  EXPECT_TRUE(job.guessed.empty());
  EXPECT_EQ(job.nodes, 2);
  EXPECT_EQ(job.node_rank, 1);
  EXPECT_EQ(job.because.at("nodes"), "found when the ranks joined");
  EXPECT_EQ(job.because.at("local_rank"), "LOCAL_RANK=0");
}

TEST(Layout, AnotherVersionsTextIsAnErrorThatSaysSo) {
  EXPECT_THROW(launch::pack_layout({R"(["a", 0])"}), InputError);
  EXPECT_THROW(launch::place_in(R"({"places": 7})", 0), InputError);
}

}  // namespace
}  // namespace lockstep
