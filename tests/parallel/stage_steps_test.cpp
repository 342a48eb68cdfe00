// The messages of a pipeline's stages by NCCL's rules: a rank's groups run one after the other, and a group
// ends when each of its messages has been posted on both sides. The harshest reading: nothing is sent ahead.
#include "lockstep/parallel/stages/stage_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace lockstep::parallel {
namespace {

using Plan = std::vector<StageStep>;  // of a stage
using Plans = std::vector<Plan>;      // by stage
using Pair = std::pair<int, int>;     // from, to
using Posts = std::vector<const StageMessage*>;

Plans plans_of(int stages, int64_t micro_batches) {
  Plans plans;
  for (int stage = 0; stage < stages; ++stage) plans.push_back(stage_steps(stages, stage, micro_batches));
  return plans;
}

// Stages below `frozen` learn nothing: no gradient goes there.
Plans without_gradients(Plans plans, int frozen) {
  for (size_t stage = 0; stage < plans.size(); ++stage) {
    for (auto& step : plans[stage]) {
      std::erase_if(step.messages, [&](const StageMessage& message) {
        const int receiver = message.sends ? message.peer : static_cast<int>(stage);
        return !message.forward && receiver < frozen;
      });
    }
  }
  return plans;
}

// What somebody who knows no groups would do: each message by itself, one after the other.
Plans one_by_one(const Plans& plans) {
  Plans result;
  for (const auto& plan : plans) {
    auto& own = result.emplace_back();
    for (const auto& step : plan)
      for (const auto& message : step.messages) own.push_back({{message}, {}});
  }
  return result;
}

// Plays the groups of all stages. The k-th send to a peer meets the k-th receive that the peer has posted for
// it; whoever waits holds everything that he does later.
class Nccl {
 public:
  explicit Nccl(const Plans& plans) : plans_(plans), next_(plans.size(), 0), waits_for_(plans.size()) {
    for (size_t stage = 0; stage < plans.size(); ++stage) post(stage);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < plans.size(); ++stage) moved |= advance(stage);
    }
  }

  bool all_ended() const {
    for (size_t stage = 0; stage < plans_.size(); ++stage)
      if (next_[stage] != plans_[stage].size()) return false;
    return true;
  }
  /// Does every message meet the one that it is meant for?
  bool all_meant() const { return all_meant_; }

 private:
  void post(size_t stage) {
    const auto place = next_[stage];
    if (place == plans_[stage].size()) return;
    for (const auto& message : plans_[stage][place].messages) {
      const int own = static_cast<int>(stage);
      const Pair pair = message.sends ? Pair{own, message.peer} : Pair{message.peer, own};
      auto& mine = (message.sends ? sent_ : received_)[pair];
      mine.push_back(&message);
      waits_for_[stage].emplace_back(pair, mine.size());
    }
  }

  bool advance(size_t stage) {
    if (next_[stage] == plans_[stage].size()) return false;
    const auto met = [&](const auto& waited) {
      const auto& [pair, number] = waited;
      return sent_[pair].size() >= number && received_[pair].size() >= number;
    };
    const auto& waited = waits_for_[stage];
    if (!std::all_of(waited.begin(), waited.end(), met)) return false;
    for (const auto& [pair, number] : waited) {
      const auto &sent = *sent_[pair][number - 1], &received = *received_[pair][number - 1];
      all_meant_ &= sent.forward == received.forward && sent.micro_batch == received.micro_batch;
    }
    waits_for_[stage].clear();
    ++next_[stage];
    post(stage);
    return true;
  }

  const Plans& plans_;
  std::vector<size_t> next_;
  std::vector<std::vector<std::pair<Pair, size_t>>> waits_for_;
  std::map<Pair, Posts> sent_, received_;
  bool all_meant_ = true;
};

template <class Check>
void for_each_shape(const Check& check) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int64_t batches = 1; batches <= 12; ++batches) {
      SCOPED_TRACE(std::to_string(stages) + " stages, " + std::to_string(batches) + " micro-batches");
      check(stages, batches);
    }
  }
}

TEST(StageSteps, SendWhatWasMadeAndReceiveWhatIsNeededAsOneGroup) {
  const auto first = stage_steps(2, 0, 2);
  ASSERT_EQ(first.size(), 5U);
  EXPECT_TRUE(first[0].messages.empty());
  EXPECT_EQ(first[1].messages, (std::vector<StageMessage>{{true, true, 0, 1}}));
  EXPECT_EQ(first[2].messages, (std::vector<StageMessage>{{true, true, 1, 1}, {false, false, 0, 1}}));
  EXPECT_EQ(first[3].messages, (std::vector<StageMessage>{{false, false, 1, 1}}));
  EXPECT_TRUE(first[4].messages.empty());
  EXPECT_EQ(first[3].turn, (Turn{false, 1}));
  EXPECT_FALSE(first[4].turn.has_value());
}

// A message that only one side posts, or that meets another, would show, too.
TEST(StageSteps, NeverWaitForEachOtherHoweverManyOfTheFirstStagesAreFrozen) {
  for_each_shape([](int stages, int64_t batches) {
    for (int frozen = 0; frozen <= stages; ++frozen) {
      const auto plans = without_gradients(plans_of(stages, batches), frozen);
      const Nccl played(plans);
      EXPECT_TRUE(played.all_ended()) << frozen << " frozen";
      EXPECT_TRUE(played.all_meant()) << frozen << " frozen";
    }
  });
}

// An order that does hang: the player must notice.
TEST(StageSteps, WithoutGroupsTwoNeighboursBothSend) {
  for_each_shape([](int stages, int64_t batches) {
    const auto plans = one_by_one(plans_of(stages, batches));
    EXPECT_EQ(Nccl(plans).all_ended(), stages == 1 || batches == 1);
  });
}

using Orders = std::vector<std::vector<Turn>>;

std::vector<Turn> turns_of(int stages, int stage, int64_t micro_batches) {
  std::vector<Turn> turns;
  for (const auto& step : stage_steps(stages, stage, micro_batches))
    if (step.turn) turns.push_back(*step.turn);
  return turns;
}

Orders turns_of_all(int stages, int64_t micro_batches) {
  Orders orders;
  for (int stage = 0; stage < stages; ++stage) orders.push_back(turns_of(stages, stage, micro_batches));
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

TEST(StageTurns, AlternatesAfterItsWarmUp) {
  EXPECT_EQ(turns_of(2, 0, 3),
            (std::vector<Turn>{{true, 0}, {true, 1}, {false, 0}, {true, 2}, {false, 1}, {false, 2}}));
  EXPECT_EQ(turns_of(2, 1, 2), (std::vector<Turn>{{true, 0}, {false, 0}, {true, 1}, {false, 1}}));
}

TEST(StageTurns, EndsTakesNoLongerThanTheFormulaAndKeepsFewAlive) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int64_t batches = 1; batches <= 9; ++batches) {
      const auto orders = turns_of_all(stages, batches);
      const auto time = time_of(orders);
      EXPECT_EQ(time, 2 * (batches + stages - 1)) << stages << " stages, " << batches << " micro-batches";
      const double idle = 1 - 2 * static_cast<double>(batches) / static_cast<double>(time);
      EXPECT_DOUBLE_EQ(idle, static_cast<double>(stages - 1) / static_cast<double>(batches + stages - 1));
      for (int stage = 0; stage < stages; ++stage)
        EXPECT_EQ(most_alive(orders[static_cast<size_t>(stage)]),
                  static_cast<size_t>(std::min<int64_t>(stages - stage, batches)));
    }
  }
}

TEST(CutChain, TheDearestStageCostsLeast) {
  using Sizes = std::vector<size_t>;
  EXPECT_EQ(cut_chain({1, 1, 1, 1}, 2), (Sizes{2, 2}));
  EXPECT_EQ(cut_chain({9, 1, 1, 1}, 2), (Sizes{1, 3}));
  EXPECT_EQ(cut_chain({1, 1, 1, 9}, 3), (Sizes{1, 2, 1}));
  EXPECT_EQ(cut_chain({320, 18496, 401536, 1290}, 4), (Sizes{1, 1, 1, 1}));
  EXPECT_EQ(cut_chain({5}, 1), (Sizes{1}));
}

}  // namespace
}  // namespace lockstep::parallel
