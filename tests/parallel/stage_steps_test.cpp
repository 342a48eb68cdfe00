// The messages of a pipeline's stages by NCCL's rules: a rank's groups run one after the other, and a group
// ends when each of its messages has been posted on both sides. The harshest reading: nothing is sent ahead.
#include "lockstep/parallel/stages/stage_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::parallel {
namespace {

using Plan = std::vector<StageStep>;  // of a stage
using Plans = std::vector<Plan>;      // by stage
using Pair = std::pair<int, int>;     // from, to
using Posts = std::vector<const StageMessage*>;

Plans plans_of(int stages, int64_t micro_batches) {
  Plans plans;
  for (int stage = 0; stage < stages; ++stage)
    plans.push_back(stage_steps(one_f_one_b(stages, stage, micro_batches), stages, stage));
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
    for (const auto& step : plan) {
      for (const auto& message : step.messages) own.push_back({{message}, {}});
    }
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
  const auto first = stage_steps(one_f_one_b(2, 0, 2), 2, 0);
  ASSERT_EQ(first.size(), 5U);
  EXPECT_TRUE(first[0].messages.empty());
  EXPECT_EQ(first[1].messages, (std::vector<StageMessage>{{true, true, 0, 1}}));
  EXPECT_EQ(first[2].messages, (std::vector<StageMessage>{{true, true, 1, 1}, {false, false, 0, 1}}));
  EXPECT_EQ(first[3].messages, (std::vector<StageMessage>{{false, false, 1, 1}}));
  EXPECT_TRUE(first[4].messages.empty());
  EXPECT_EQ(first[3].turn, (Turn{false, 1}));
  EXPECT_FALSE(first[4].turn.has_value());
}

TEST(StageSteps, HoldEveryTurnAndEveryMessageOnBothSides) {
  for_each_shape([](int stages, int64_t batches) {
    std::map<std::pair<Pair, std::pair<bool, int64_t>>, int> balance;
    const auto plans = plans_of(stages, batches);
    for (int stage = 0; stage < stages; ++stage) {
      std::vector<Turn> turns;
      for (const auto& step : plans[static_cast<size_t>(stage)]) {
        if (step.turn) turns.push_back(*step.turn);
        for (const auto& [sends, forward, batch, peer] : step.messages)
          balance[{sends ? Pair{stage, peer} : Pair{peer, stage}, {forward, batch}}] += sends ? 1 : -1;
      }
      EXPECT_EQ(turns, one_f_one_b(stages, stage, batches));
    }
    EXPECT_EQ(balance.size(), static_cast<size_t>(2 * (stages - 1) * batches));
    for (const auto& [message, count] : balance) EXPECT_EQ(count, 0);
  });
}

TEST(StageSteps, NeverWaitForEachOther) {
  for_each_shape([](int stages, int64_t batches) {
    const auto plans = plans_of(stages, batches);
    const Nccl played(plans);
    EXPECT_TRUE(played.all_ended());
    EXPECT_TRUE(played.all_meant());
  });
}

TEST(StageSteps, NeverWaitForEachOtherWhereTheFirstStagesAreFrozen) {
  for_each_shape([](int stages, int64_t batches) {
    for (int frozen = 1; frozen <= stages; ++frozen) {
      const auto plans = without_gradients(plans_of(stages, batches), frozen);
      const Nccl played(plans);
      EXPECT_TRUE(played.all_ended()) << frozen << " frozen";
      EXPECT_TRUE(played.all_meant()) << frozen << " frozen";
    }
  });
}

// The next three are orders that do hang: the player has to see it.
TEST(StageSteps, WithoutGroupsTwoNeighboursBothSend) {
  for_each_shape([](int stages, int64_t batches) {
    const auto plans = one_by_one(plans_of(stages, batches));
    EXPECT_EQ(Nccl(plans).all_ended(), stages == 1 || batches == 1);
  });
}

}  // namespace
}  // namespace lockstep::parallel
