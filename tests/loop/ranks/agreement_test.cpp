// What ranks of a run agree on: a checkpoint that one of them has read, and a stop.
#include "lockstep/parallel/team.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <csignal>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/checkpoint/tree.h"
#include "lockstep/tasks/collective/sets.h"
#include "loop/ranks/team.h"
#include "trainer/loop/watch.h"
#include "trainer/observe/trace.h"

namespace lockstep::train {
namespace {

using test::team;

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

// One time line of all ranks.

TEST(CompareClocks, ClaimsAnErrorThatHolds) {
  const auto readings = compare_clocks(team());
  ASSERT_EQ(readings.size(), static_cast<size_t>(team().world()));
  EXPECT_EQ(readings[0].ahead, 0);
  EXPECT_NEAR(readings.back().ahead, 0, readings.back().error + 1e3);  // the ranks share a host
  EXPECT_LT(readings.back().error, 50e6);
}

// A load may take longer than a collective may.

using namespace std::chrono_literals;

TEST(Load, MayTakeLongerThanACollective) {
  for (const auto* backend : {"gloo", "shared"}) {
    const auto group = comm::connect(test::runtime(), {.backend = backend, .timeout = 60s});
    const Team team(test::runtime().job(), group, at::kCPU);
    const auto share = tasks::node_share(team);
    base::set_timeout(*group->getBackend(c10::kCPU), 200ms);
    if (team.first()) std::this_thread::sleep_for(1s);
    EXPECT_NO_THROW(share.exchange("")) << backend;
  }
}

}  // namespace
}  // namespace lockstep::train
