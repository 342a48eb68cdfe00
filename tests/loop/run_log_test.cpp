// What a run leaves in its folder while it trains.
#include "trainer/loop/run_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "loop/alone.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using run_folder::RunState;

class RunLogTest : public ::testing::Test {
 protected:
  std::vector<nlohmann::json> lines() const {
    std::istringstream text(base::read_text(run_.folder() / "metrics.jsonl"));
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(text, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
  bool has_curves() const {
    return std::any_of(fs::directory_iterator(run_.folder()), fs::directory_iterator(),
                       [](const auto& entry) {
                         return entry.path().filename().string().starts_with("events.out.tfevents.") &&
                                entry.file_size() > 0;
                       });
  }
  RunLog open(const TrainingState& state = {}) const {
    return RunLog(run_.settings, run_.mesh, state, 100, run_.attempt);
  }
  static TrainingState at_step(int64_t step) {
    TrainingState state;
    state.step = state.step_in_epoch = step;
    return state;
  }
  test::Alone run_;
};

TEST_F(RunLogTest, SaysFromTheStartThatTheRunIsOn) {
  run_.attempt.number = 3;
  run_.attempt.found = "/elsewhere/checkpoints/step-00000007.pt";
  auto state = at_step(7);
  state.seconds = 20;
  const auto log = open(state);
  const auto status = run_.status();
  EXPECT_EQ(status.state, RunState::running);
  EXPECT_EQ(status.attempt, 3);
  EXPECT_EQ(status.step, 7);
  EXPECT_EQ(status.epochs, run_.settings.train.epochs);
  EXPECT_EQ(status.checkpoint, "checkpoints/step-00000007.pt");
  EXPECT_GE(log.seconds(), 20);
  EXPECT_LT(log.seconds(), 80);
}

TEST_F(RunLogTest, WritesALineForAStepWithTheSameBits) {
  auto log = open();
  log.begin_steps(10);
  log.took_step(at_step(4), 32);
  log.step(at_step(4), 1.0 / 3, 0.1);
  auto line = lines().at(0);
  EXPECT_GT(line["samples_per_second"].get<double>(), 0);
  line.erase("samples_per_second");
  EXPECT_EQ(line,
            (nlohmann::json{{"event", "step"}, {"step", 4}, {"epoch", 0}, {"loss", 1.0 / 3}, {"lr", 0.1}}));
  EXPECT_TRUE(has_curves());
}

TEST_F(RunLogTest, WritesALineForAnEpoch) {
  auto log = open();
  log.begin_epoch();
  log.took_step(at_step(4), 32);
  auto state = at_step(4);
  state.epoch_trained = true;
  log.epoch(state, 0.25, {.values = {{"loss", 0.5}, {"accuracy", 0.75}}});
  const auto line = lines().at(0);
  EXPECT_TRUE(line["event"] == "epoch" && line["epoch"] == 0 && line["train_loss"] == 0.25 &&
              line["eval_loss"] == 0.5 && line["accuracy"] == 0.75)
      << line;
  // within a second, by a thread that waits for the disk in this one's place
  for (int i = 0; i < 6000 && run_.status().epoch != 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const auto status = run_.status();
  EXPECT_EQ(status.epoch, 1);
  EXPECT_EQ(status.loss, 0.25);
  EXPECT_EQ(status.accuracy, 0.75);
}

TEST_F(RunLogTest, CutsWhatCameAfterTheCheckpoint) {
  TrainingState saved;
  {
    auto log = open();
    log.step(at_step(1), 1, 0.1);
    saved.metrics_offset = log.metrics_offset();
    log.step(at_step(2), 2, 0.1);
  }
  auto log = open(saved);
  log.step(at_step(2), 3, 0.1);
  const auto all = lines();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["loss"], 1);
  EXPECT_EQ(all[1]["loss"], 3);
}

TEST_F(RunLogTest, WritesNothingWhereThereIsNoFolder) {
  run_.attempt.folder.reset();
  auto log = open();
  log.took_step(at_step(1), 32);
  log.step(at_step(1), 1, 0.1);
  log.epoch(at_step(1), 1, {});
  log.tell(at_step(1), RunState::done, "epochs");
  log.report_failure("nobody hears it");
  EXPECT_EQ(log.metrics_offset(), 0);
  EXPECT_FALSE(fs::exists(run_.folder() / "status.json"));
}

}  // namespace
}  // namespace lockstep::train
