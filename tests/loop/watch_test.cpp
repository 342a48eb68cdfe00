// How a run ends, and what goes before what.
#include "trainer/loop/watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>

#include "lockstep/launch/process/stop_signal.h"
#include "loop/alone.h"
#include "refusal.h"

namespace lockstep::train {
namespace {

using namespace std::chrono_literals;
using run_folder::RunState;
using SystemClock = std::chrono::system_clock;

class WatchTest : public ::testing::Test {
 protected:
  void SetUp() override { const launch::StopSignals forgets_what_came_before; }

  // After one step with this loss, and whatever happened while it was taken.
  std::optional<RunEnding> after_a_step(const std::function<void()>& meanwhile = {}, double loss = 1) {
    RunWatch watch(
        run_.settings, run_.team, [this] { return deadline_; }, &requests_, log_);
    watch.begin(state_);
    if (watch.ending()) return watch.ending();
    if (meanwhile) meanwhile();
    ++state_.step;
    losses_.add(state_.step, torch::tensor(loss), {5, 7});
    watch.apply(watch.ask(state_, losses_, false), state_, losses_);
    return watch.ending();
  }
  std::string reason_after_a_step(const std::function<void()>& meanwhile = {}) {
    const auto ending = after_a_step(meanwhile);
    return ending ? ending->reason : "";
  }
  void ask_to_stop() {
    requests_ = run_folder::Requests(run_.folder());  // looks at once
    run_folder::ask(run_.folder(), run_folder::RunRequest::stop);
  }

  test::Alone run_;
  TrainSettings& train_ = run_.settings.train;
  run_folder::Requests requests_{run_.folder()};
  TrainingState state_;
  LossTrace losses_;
  RunLog log_{run_.settings, run_.mesh, state_, 100, run_.attempt};
  std::optional<SystemClock::time_point> deadline_;
};

TEST_F(WatchTest, EndsByEpochsWhereNothingElseWas) {
  RunWatch watch(run_.settings, run_.team, {}, nullptr, log_);
  watch.begin(state_);
  EXPECT_EQ(watch.finish().state, RunState::done);
  EXPECT_EQ(watch.finish().reason, "epochs");
  EXPECT_FALSE(watch.is_stopping());
}

TEST_F(WatchTest, StopsEarlyOnASignal) {
  const launch::StopSignals signals;
  const auto ending = after_a_step([] { ::raise(SIGUSR1); });
  EXPECT_EQ(ending->state, RunState::stopped_early);
  EXPECT_EQ(ending->reason, "SIGUSR1");
  EXPECT_TRUE(ending->stopped());
}

TEST_F(WatchTest, HearsBetweenTwoStepsToo) {
  const launch::StopSignals signals;
  RunWatch watch(run_.settings, run_.team, {}, &requests_, log_);
  watch.begin(state_);
  auto agreement = watch.count_rounds();
  EXPECT_EQ(watch.exchange_between_rounds(agreement, 1, true).save, true);
  EXPECT_FALSE(watch.ending());
  ::raise(SIGTERM);
  watch.exchange_between_rounds(agreement, 2, false);
  EXPECT_TRUE(watch.is_stopping());
}

TEST_F(WatchTest, StopsOnRequest) {
  const auto ending = after_a_step([this] { ask_to_stop(); });
  EXPECT_EQ(ending->state, RunState::stopped_on_request);
  EXPECT_EQ(ending->reason, "lockstep stop");
}

TEST_F(WatchTest, StopsBeforeTheDeadlineByTheTimeThatACheckpointNeeds) {
  run_.settings.checkpoint.before_deadline = 60s;
  deadline_ = SystemClock::now() + 90s;
  EXPECT_FALSE(after_a_step());
  deadline_ = SystemClock::now() + 30s;
  const auto ending = after_a_step();
  EXPECT_EQ(ending->state, RunState::stopped_early);
  EXPECT_EQ(ending->reason, "the job's time limit is near");
}

TEST_F(WatchTest, IsDoneAfterMaxSteps) {
  train_.max_steps = 2;
  EXPECT_FALSE(after_a_step());
  const auto ending = after_a_step();
  EXPECT_EQ(ending->state, RunState::done);
  EXPECT_EQ(ending->reason, "max_steps");
  EXPECT_EQ(state_.step, 2);
}

TEST_F(WatchTest, TakesNoStepWhereAnAttemptBeforeCameToTheLimit) {
  train_.max_steps = 4;
  state_.step = 4;
  EXPECT_EQ(reason_after_a_step(), "max_steps");
  EXPECT_EQ(state_.step, 4);
  train_.max_steps = 0;
  train_.max_seconds = 10;
  state_.seconds = 11;
  EXPECT_EQ(reason_after_a_step(), "max_seconds");
  EXPECT_EQ(state_.step, 4);
}

TEST_F(WatchTest, SaysWhichLossWasNoNumber) {
  state_.epoch = 3;
  const auto error = test::error_from<Error>([&] { after_a_step({}, NAN); });
  EXPECT_STREQ(error.what(), "the loss is nan at step 1");
  EXPECT_EQ(error.where(), "epoch 3, rank 0, samples 5, 7");
}

// Where several come in one step.
TEST_F(WatchTest, PutsARequestBeforeASignalThenTheDeadlineTheTimeAndTheSteps) {
  const std::vector<std::pair<std::function<void()>, std::string>> causes = {
      {[this] { train_.max_steps = 1; }, "max_steps"},
      {[this] { train_.max_seconds = 1e-9; }, "max_seconds"},
      {[this] { run_.settings.checkpoint.before_deadline = 2h; }, "the job's time limit is near"},
      {[] { ::raise(SIGUSR2); }, "SIGUSR2"},
      {[this] { ask_to_stop(); }, "lockstep stop"},
  };
  deadline_ = SystemClock::now() + 1h;
  for (size_t last = 0; last < causes.size(); ++last) {
    const launch::StopSignals signals;
    state_.step = 0;
    train_.max_steps = 0;
    train_.max_seconds = 0;
    run_.settings.checkpoint.before_deadline = 0s;
    const auto meanwhile = [&] {
      for (size_t i = 0; i <= last; ++i) causes[i].first();
    };
    EXPECT_EQ(reason_after_a_step(meanwhile), causes[last].second);
  }
}

TEST_F(WatchTest, AsksAtTheLastStepAndAtAnEpochsEnd) {
  train_.max_steps = 9;
  RunWatch watch(run_.settings, run_.team, {}, &requests_, log_);
  watch.begin(state_);
  state_.step = 1;
  EXPECT_TRUE(watch.is_due(state_));  // the first: nobody knows yet how long a step takes
  watch.ask(state_, losses_, false);
  EXPECT_FALSE(watch.is_due(state_));
  state_.epoch_trained = true;
  EXPECT_TRUE(watch.is_due(state_));
  state_.epoch_trained = false;
  state_.step = 9;
  EXPECT_TRUE(watch.is_due(state_));
}

TEST_F(WatchTest, CountsEpochsWithoutABetterLoss) {
  train_.eval_every = 2;
  train_.early_stop = 4;
  RunWatch watch(run_.settings, run_.team, {}, &requests_, log_);
  EXPECT_FALSE(watch.is_best(std::nullopt, state_));
  EXPECT_TRUE(watch.is_best(1.0, state_));
  EXPECT_FALSE(watch.is_best(1.0, state_));
  EXPECT_TRUE(watch.is_best(0.5, state_));
  EXPECT_EQ(state_.best_loss, 0.5);
  EXPECT_FALSE(watch.is_best(0.7, state_));
  EXPECT_FALSE(watch.ending());
  EXPECT_FALSE(watch.is_best(0.6, state_));
  EXPECT_EQ(state_.epochs_without_better, 4);
  EXPECT_EQ(watch.ending()->reason, "early stop");
  EXPECT_EQ(watch.ending()->state, RunState::done);
}

}  // namespace
}  // namespace lockstep::train
