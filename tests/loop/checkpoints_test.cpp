// When a run takes a checkpoint, and which files that leaves.
#include "trainer/loop/checkpoints.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "lockstep/base/files/whole_file.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/models/mlp.h"
#include "loop/alone.h"
#include "refusal.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Names = std::vector<std::string>;

Learner small_learner(const Settings& settings, const Team& team) {
  Learner learner;
  learner.source = std::make_unique<test::NoSource>();
  learner.model =
      make_trained_model(std::make_shared<Mlp>(2, std::vector<int64_t>{3}, 2), Mesh(team), settings, {});
  learner.optimizer = make_optimizer(settings.optim, learner.model->parameters());
  learner.schedule = make_schedule(settings.schedule, *learner.optimizer, 100, settings.train.epochs);
  learner.memory = Tree();
  return learner;
}

class CheckpointsTest : public ::testing::Test {
 protected:
  CheckpointsTest() {
    rules_ = {.every_epochs = 0, .every_steps = 0, .every_minutes = 0, .keep = 0, .best = true};
    requests_.emplace(run_.folder());
  }
  Checkpoints open(const TrainingState& state = {}) {
    return Checkpoints({run_.settings, run_.mesh, learner_, "run: {name: alone}\n"}, state, run_.attempt,
                       &*requests_, log_);
  }
  // The files that are there when everything is written that this has taken.
  template <class Work>
  Names after(const Work& work, const TrainingState& state = {}) {
    {
      auto checkpoints = open(state);
      work(checkpoints);
    }
    Names names;
    if (!fs::exists(folder())) return names;
    for (const auto& entry : fs::directory_iterator(folder())) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  fs::path folder() const { return run_.folder() / "checkpoints"; }
  static TrainingState at(int64_t step, int64_t epoch = 0, bool trained = false) {
    TrainingState state;
    state.step = step;
    state.epoch = epoch;
    state.epoch_trained = trained;
    return state;
  }

  test::Alone run_;
  CheckpointSettings& rules_ = run_.settings.checkpoint;
  std::optional<run_folder::Requests> requests_;
  Learner learner_ = small_learner(run_.settings, run_.team);
  LossTrace losses_;
  RunLog log_{run_.settings, run_.mesh, {}, 100, run_.attempt};
};

TEST_F(CheckpointsTest, AreDueEverySoManySteps) {
  auto checkpoints = open();
  EXPECT_FALSE(checkpoints.is_due(at(4)));
  rules_.every_steps = 2;
  EXPECT_TRUE(checkpoints.is_due(at(4)));
  EXPECT_FALSE(checkpoints.is_due(at(5)));
  EXPECT_FALSE(checkpoints.is_due(at(4, 0, true)));  // the epoch's end has its own
}

TEST_F(CheckpointsTest, AreWantedEverySoManyMinutes) {
  rules_.every_minutes = 60;
  auto checkpoints = open();
  EXPECT_FALSE(checkpoints.is_wanted(at(1)));
  rules_.every_minutes = 0.02 / 60;
  std::this_thread::sleep_for(30ms);
  EXPECT_TRUE(checkpoints.is_wanted(at(1)));
  rules_.every_minutes = 60;
  EXPECT_FALSE(checkpoints.is_wanted(at(1)));
}

TEST_F(CheckpointsTest, AnswerWhoAskedForOneWhenItIsWhole) {
  run_folder::ask(run_.folder(), run_folder::RunRequest::checkpoint);
  const auto file = run_folder::request_file(run_.folder(), run_folder::RunRequest::checkpoint);
  auto checkpoints = open();
  EXPECT_TRUE(checkpoints.is_wanted(at(3)));
  checkpoints.save(at(3), losses_);
  for (int i = 0; i < 12'000 && fs::exists(file); ++i) {
    EXPECT_FALSE(checkpoints.is_wanted(at(3)));
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(run_.status().checkpoint, "checkpoints/step-00000003.pt");
}

TEST_F(CheckpointsTest, AreWrittenAgainOnceThereIsRoom) {
  const auto names = after([this](auto& checkpoints) {
    base::replace_file(folder().string(), "in the folder's place");
    checkpoints.save(at(1), losses_);
    std::this_thread::sleep_for(50ms);  // it is written by another thread
    fs::remove(folder());
    checkpoints.save(at(2), losses_);
  });
  EXPECT_EQ(std::ranges::count(names, "step-00000002.pt"), 1);
}

TEST_F(CheckpointsTest, KeepTheBestBesideTheNewest) {
  rules_.every_epochs = 2;
  rules_.keep = 1;
  EXPECT_EQ(after([&](auto& checkpoints) { checkpoints.save_after_epoch(at(10, 1), losses_, true, false); }),
            Names{"best.pt"});
  EXPECT_EQ(after([&](auto& checkpoints) { checkpoints.save_after_epoch(at(20, 2), losses_, false, false); }),
            (Names{"best.pt", "step-00000020.pt"}));
  EXPECT_EQ(after([&](auto& checkpoints) { checkpoints.save(at(30, 3), losses_); }),
            (Names{"best.pt", "step-00000030.pt"}));
}

TEST_F(CheckpointsTest, LeaveTheLastEpochsToTheRunsEnd) {
  rules_.every_epochs = 1;
  const auto end_epoch = [&](auto& checkpoints) {
    checkpoints.save_after_epoch(at(10, 1), losses_, true, true);
  };
  EXPECT_EQ(after(end_epoch), Names{});
  const auto end_run = [&](auto& checkpoints) {
    end_epoch(checkpoints);
    checkpoints.save(at(10, 1), losses_);
  };
  EXPECT_EQ(after(end_run), (Names{"best.pt", "step-00000010.pt"}));
}

TEST_F(CheckpointsTest, HoldWhatARunGoesOnFrom) {
  losses_.restart(2.5, 7);
  auto state = at(3, 1);
  state.consumed = 96;
  state.step_in_epoch = 2;
  state.best_loss = 0.25;
  state.epochs_without_better = 2;
  log_.step(state, 1, 0.1);
  after([&](auto& checkpoints) {
    checkpoints.save(state, losses_);
    state.epoch_trained = true;
    checkpoints.save(state, losses_);
  });
  const auto found = CheckpointStore(folder()).latest();
  ASSERT_TRUE(found);
  const auto back = from_checkpoint(run_.mesh, found->tree, found->path, learner_);
  EXPECT_EQ(back.step, 3);
  EXPECT_EQ(back.epoch, 1);
  EXPECT_TRUE(back.epoch_trained) << "or it would be trained again";
  EXPECT_EQ(back.consumed, 96);
  EXPECT_EQ(back.step_in_epoch, 2);
  EXPECT_EQ(back.best_loss, 0.25);
  EXPECT_EQ(back.epochs_without_better, 2);
  EXPECT_EQ(back.loss_sum, 2.5);
  EXPECT_EQ(back.loss_count, 7);
  EXPECT_EQ(back.metrics_offset, static_cast<int64_t>(fs::file_size(run_.folder() / "metrics.jsonl")));
  for (const int64_t impossible : {int64_t{-5}, int64_t{1} << 62}) {
    put(found->tree, "iter_no", impossible);
    EXPECT_THROW(from_checkpoint(run_.mesh, found->tree, found->path, learner_), InputError);
  }
}

TEST_F(CheckpointsTest, AreNotTakenOfWhatIsNoNumber) {
  const torch::NoGradGuard no_grad;
  auto checkpoints = open();
  learner_.model->parameters()[1][0] = NAN;
  EXPECT_STREQ(test::error_from<Error>([&] { checkpoints.save(at(3), losses_); }).what(),
               "parameter layers.0.bias is not finite after step 3, so no checkpoint was written");
  EXPECT_FALSE(fs::exists(folder()));
}

}  // namespace
}  // namespace lockstep::train
