#include "lockstep/launch/layout.h"

#include "environments.h"

namespace lockstep {
namespace {

launch::Seat on(const std::string& machine, std::optional<int> local_rank = {},
                std::optional<int> local_world = {}, std::optional<int> node_rank = {}) {
  return {machine, local_rank, local_world, node_rank};
}

// "local rank/local world@node rank/nodes" of each rank
std::vector<std::string> layout(const std::vector<launch::Seat>& seats) {
  std::vector<std::string> texts;
  for (const auto& place : launch::layout_of(seats)) {
    texts.push_back(std::to_string(place.local_rank) + "/" + std::to_string(place.local_world) + "@" +
                    std::to_string(place.node_rank) + "/" + std::to_string(place.nodes));
  }
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
  EXPECT_TRUE(test::holds(places[0].warning, {"set 2 ranks", "there are 1"})) << places[0].warning;
}

// the commonest exports by hand: no LOCAL_WORLD_SIZE
TEST(Layout, TheMeetingReplacesWhatWasAssumed) {
  Job job = launch::identify({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}, std::nullopt);
  EXPECT_FALSE(launch::own_seat(job).local_world || launch::own_seat(job).node_rank);
  EXPECT_EQ(launch::own_seat(job).local_rank, 0);
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
