// What ranks of a run agree on: a checkpoint that one of them has read, and a stop.
#include "lockstep/parallel/team.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <csignal>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/collective/share_tree.h"
#include "lockstep/checkpoint/tree.h"
#include "loop/ranks/team.h"
#include "trainer/loop/watch.h"

namespace lockstep::train {
namespace {

using test::team;

TEST(ShareTree, EveryRankGetsWhatTheFirstHasRead) {
  const auto tree = checkpoint::share_tree(team(), [] {
    EXPECT_TRUE(team().first());
    return make_dict({{"iter_no", int64_t{7}}, {"model", make_dict({{"w", torch::arange(5)}})}});
  });
  EXPECT_EQ(as_int(get(tree, "iter_no"), "iter_no"), 7);
  EXPECT_TRUE(torch::equal(get(get(tree, "model"), "w").toTensor(), torch::arange(5)));
}

TEST(Agreement, AWordOnOneRankIsHeardByAll) {
  Agreement agreement(team());
  RankReport word;
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

TEST(Agreement, DifferentSignalsAreNotMixed) {
  const std::pair<int, int> received[] = {{SIGUSR1, SIGTERM}, {SIGINT, SIGTERM}, {SIGUSR2, SIGUSR1}};
  for (const auto& [first, others] : received) {
    RankReport report;
    report.signal = team().first() ? first : others;
    EXPECT_EQ(Agreement(team()).ask(1, report).signal, others);
  }
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
