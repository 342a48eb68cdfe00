// The order of a pipeline's turns, played through for all stages at once, and where a chain is cut.
#include "lockstep/parallel/one_f_one_b.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/parallel/stages/stage_line.h"

namespace lockstep {
namespace {

using Orders = std::vector<std::vector<Turn>>;

Orders one_f_one_b_of_all(int stages, int64_t micro_batches) {
  Orders orders;
  for (int stage = 0; stage < stages; ++stage) orders.push_back(one_f_one_b(stages, stage, micro_batches));
  return orders;
}

// Plays it with a unit of time a turn; sends never wait. The moment each stage was busy last, or -1 for one
// that waits for ever.
int64_t time_of(const Orders& orders) {
  const int stages = static_cast<int>(orders.size());
  std::map<std::tuple<bool, int, int64_t>, int64_t> done;  // direction, stage, micro-batch -> when
  std::vector<size_t> next(orders.size(), 0);
  std::vector<int64_t> free_at(orders.size(), 0);
  bool moved = true;
  while (moved) {
    moved = false;
    for (int stage = 0; stage < stages; ++stage) {
      const auto s = static_cast<size_t>(stage);
      if (next[s] == orders[s].size()) continue;
      const auto [forward, batch] = orders[s][next[s]];
      const int from = forward ? stage - 1 : stage + 1;
      int64_t begin = free_at[s];
      if (from >= 0 && from < stages) {
        const auto sent = done.find({forward, from, batch});
        if (sent == done.end()) continue;
        begin = std::max(begin, sent->second);
      }
      done[{forward, stage, batch}] = free_at[s] = begin + 1;
      ++next[s];
      moved = true;
    }
  }
  for (size_t s = 0; s < orders.size(); ++s)
    if (next[s] != orders[s].size()) return -1;
  return *std::max_element(free_at.begin(), free_at.end());
}

size_t most_alive(const std::vector<Turn>& order) {
  std::set<int64_t> alive;
  size_t most = 0;
  for (const auto& [forward, batch] : order) {
    if (forward) {
      EXPECT_TRUE(alive.insert(batch).second);
    } else {
      EXPECT_EQ(alive.erase(batch), 1U) << "a backward before its forward";
    }
    most = std::max(most, alive.size());
  }
  EXPECT_TRUE(alive.empty());
  return most;
}

TEST(OneFOneB, AlternatesAfterItsWarmUp) {
  EXPECT_EQ(one_f_one_b(2, 0, 3),
            (std::vector<Turn>{{true, 0}, {true, 1}, {false, 0}, {true, 2}, {false, 1}, {false, 2}}));
  EXPECT_EQ(one_f_one_b(2, 1, 2), (std::vector<Turn>{{true, 0}, {false, 0}, {true, 1}, {false, 1}}));
  EXPECT_EQ(one_f_one_b(4, 0, 1), (std::vector<Turn>{{true, 0}, {false, 0}}));
}

TEST(OneFOneB, EndsTakesNoLongerThanTheFormulaAndKeepsFewAlive) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int64_t batches = 1; batches <= 9; ++batches) {
      const auto orders = one_f_one_b_of_all(stages, batches);
      const auto time = time_of(orders);
      EXPECT_EQ(time, 2 * (batches + stages - 1)) << stages << " stages, " << batches << " micro-batches";
      const double idle = 1 - 2 * static_cast<double>(batches) / static_cast<double>(time);
      EXPECT_DOUBLE_EQ(idle, bubble_share(stages, batches));
      for (int stage = 0; stage < stages; ++stage)
        EXPECT_EQ(most_alive(orders[static_cast<size_t>(stage)]),
                  static_cast<size_t>(std::min<int64_t>(stages - stage, batches)));
    }
  }
}

// What goes from stage to stage comes in the order in which it is awaited: one message tag a direction is
// enough.
TEST(OneFOneB, SendsInTheOrderInWhichIsReceived) {
  const auto orders = one_f_one_b_of_all(4, 7);
  const auto in_direction = [&](size_t stage, bool forward) {
    std::vector<int64_t> batches;
    for (const auto& turn : orders[stage])
      if (turn.forward == forward) batches.push_back(turn.micro_batch);
    return batches;
  };
  for (size_t stage = 1; stage < orders.size(); ++stage) {
    EXPECT_EQ(in_direction(stage - 1, true), in_direction(stage, true));
    EXPECT_EQ(in_direction(stage - 1, false), in_direction(stage, false));
  }
}

TEST(Gpipe, TakesAsLongAndKeepsAllAlive) {
  for (int stages = 1; stages <= 5; ++stages) {
    for (int64_t batches = 1; batches <= 6; ++batches) {
      const Orders orders(static_cast<size_t>(stages), gpipe(batches));
      EXPECT_EQ(time_of(orders), 2 * (batches + stages - 1));
      EXPECT_EQ(most_alive(orders[0]), static_cast<size_t>(batches));
    }
  }
}

TEST(CutChain, TheDearestStageCostsLeast) {
  using Sizes = std::vector<size_t>;
  EXPECT_EQ(parallel::cut_chain({1, 1, 1, 1}, 2), (Sizes{2, 2}));
  EXPECT_EQ(parallel::cut_chain({9, 1, 1, 1}, 2), (Sizes{1, 3}));
  EXPECT_EQ(parallel::cut_chain({1, 1, 1, 9}, 3), (Sizes{1, 2, 1}));
  EXPECT_EQ(parallel::cut_chain({320, 18496, 401536, 1290}, 4), (Sizes{1, 1, 1, 1}));
  EXPECT_EQ(parallel::cut_chain({5}, 1), (Sizes{1}));
}

}  // namespace
}  // namespace lockstep
