// The small exchanges of training: sums, texts, errors that all ranks meet alike, and agreeing on a stop.
#include "lockstep/train/team.h"
#include "lockstep/comm/connect.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/tree.h"
#include "lockstep/train/agreement.h"
#include "lockstep/train/share_tree.h"
#include "ranks.h"

namespace lockstep::train {
namespace {

const Team& team() {
  static const Team instance(test::runtime().job(), comm::connect(test::runtime(), {}), at::kCPU);
  return instance;
}

TEST(Team, SumsAndMaximaAreOverRanks) {
  std::vector<double> values{1, static_cast<double>(team().rank())};
  team().sum(values);
  const int world = team().world();
  EXPECT_EQ(values, (std::vector<double>{1.0 * world, world * (world - 1) / 2.0}));
  std::vector<double> ends{static_cast<double>(team().rank()), -static_cast<double>(team().rank())};
  team().max(ends);
  EXPECT_EQ(ends, (std::vector<double>{world - 1.0, 0}));
}

TEST(Team, TextsOfAnyLengthTravel) {
  const std::string mine(static_cast<size_t>(team().rank()) * 1000, 'x');
  const auto all = team().all_gather(mine);
  ASSERT_EQ(all.size(), static_cast<size_t>(team().world()));
  for (size_t rank = 0; rank < all.size(); ++rank) EXPECT_EQ(all[rank].size(), rank * 1000);
  EXPECT_EQ(team().broadcast(team().first() ? std::string("a\0b", 3) : "mine"), std::string("a\0b", 3));
  EXPECT_EQ(team().broadcast(""), "");
}

TEST(Team, TheFirstRanksErrorIsEverybodys) {
  try {
    team().from_first([]() -> std::string { throw InputError("what", "where", "hint"); });
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(describe(error), describe(InputError("what", "where", "hint")));
  }
  EXPECT_EQ(team().from_first([] { return std::string("done"); }), "done");
}

TEST(Team, OneRanksErrorIsEverybodys) {
  const int last = team().world() - 1;
  try {
    team().together([&] {
      if (team().rank() == last) throw Error("it broke");
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "it broke");
    EXPECT_EQ(error.exit_status(), kFailed);
  }
  EXPECT_NO_THROW(team().together([] {}));
}

TEST(ShareTree, EveryRankGetsWhatTheFirstHasRead) {
  const auto tree = share_tree(team(), [] {
    EXPECT_TRUE(team().first());
    return make_dict({{"iter_no", int64_t{7}}, {"model", make_dict({{"w", torch::arange(5)}})}});
  });
  EXPECT_EQ(as_int(get(tree, "iter_no"), "iter_no"), 7);
  EXPECT_TRUE(torch::equal(get(get(tree, "model"), "w").toTensor(), torch::arange(5)));
}

TEST(Agreement, AWordOnOneRankIsHeardByAll) {
  Agreement agreement(team());
  Word word;
  word.loss = team().rank();
  EXPECT_EQ(agreement.ask(1, word).stop, Stop::no);
  if (team().rank() == team().world() - 1) word.signal = 10;
  const auto verdicts = agreement.ask(2, word);
  EXPECT_EQ(verdicts.stop, Stop::signal);
  EXPECT_EQ(verdicts.signal, 10);
  EXPECT_DOUBLE_EQ(verdicts.loss, (team().world() - 1) / 2.0);
  word.not_finite = team().first();
  EXPECT_EQ(agreement.ask(3, word).stop, Stop::not_finite);
}

TEST(Agreement, TimesOnlyTheStepsOfThisAttempt) {
  Agreement agreement(team());
  agreement.begin(5000);
  EXPECT_FALSE(agreement.due(5000));
  ASSERT_TRUE(agreement.due(5001));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  agreement.ask(5001, {});  // a step takes longer than the interval: the next one asks again
  EXPECT_TRUE(agreement.due(5002));
}

TEST(Agreement, AllRanksAskNextAtTheSameStep) {
  Agreement agreement(team());
  int64_t step = 0;
  for (int round = 0; round < 20; ++round) {
    do {
      ++step;
    } while (!agreement.due(step));
    std::vector<double> ends{static_cast<double>(step), -static_cast<double>(step)};
    team().max(ends);
    ASSERT_EQ(ends[0], -ends[1]) << "round " << round;
    agreement.ask(step, {});
  }
  EXPECT_GT(step, 20) << "quick steps are not asked about one by one";
}

}  // namespace
}  // namespace lockstep::train
