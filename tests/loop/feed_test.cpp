// Where a feed stands in its epoch: the same batches whether a run goes through or comes back inside one.
#include "trainer/step/feed.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <chrono>
#include <thread>

#include "lockstep/base/error.h"
#include "trainer/step/evaluate.h"

namespace lockstep::train {
namespace {

using Indices = std::vector<int64_t>;
using Step = std::vector<Indices>;  // its batches' samples

class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Batch get(at::ArrayRef<int64_t> indices, bool) const override {
    ++fetched;
    return {torch::zeros({static_cast<int64_t>(indices.size()), 1}), {}};
  }
  mutable int fetched = 0;

 private:
  int64_t size_;
};

struct Share {
  int rank = 0, world = 1;
};

Settings feed_settings(int64_t batch_size, int64_t accumulate) {
  Settings settings;
  settings.data.batch_size = batch_size;
  settings.data.workers = 0;
  settings.train.accumulate = accumulate;
  return settings;
}

Feed feed_of(const Settings& settings, int64_t samples, Share share = {}) {
  return Feed(settings, std::make_shared<Numbers>(samples), share.rank, share.world, at::kCPU);
}

// The next steps of the epoch, at most so many.
std::vector<Step> take(const Feed& feed, TrainingState& state, size_t most = 1000) {
  std::vector<Step> steps;
  auto epoch = feed.epoch(state);
  while (epoch.next_step()) {
    auto& step = steps.emplace_back();
    while (const auto* batch = epoch.next_batch()) {
      step.push_back(batch->indices);
      EXPECT_EQ(epoch.at_last(), std::ssize(step) == epoch.batches());
    }
    epoch.advance(state);
    if (steps.size() == most) break;
  }
  return steps;
}

// What a worker has made, sooner or later.
const Batch* made_ahead(EpochFeed& epoch, std::chrono::milliseconds patience = std::chrono::minutes(1)) {
  const auto end = std::chrono::steady_clock::now() + patience;
  const Batch* next = nullptr;
  while (!(next = epoch.look_ahead()) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return next;
}

TEST(Feed, GivesAnEpochInStepsOfWhichTheLastIsShort) {
  auto settings = feed_settings(2, 2);
  settings.data.shuffle = false;
  TrainingState state;
  EXPECT_EQ(take(feed_of(settings, 9), state),
            (std::vector<Step>{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}}}));
  EXPECT_EQ(state.step, 3);
  EXPECT_EQ(state.step_in_epoch, 3);
  EXPECT_EQ(state.consumed, 9);
  EXPECT_TRUE(state.epoch_trained);
}

TEST(Feed, GivesOneSmallerBatchWhereARankHasFewerSamples) {
  auto settings = feed_settings(128, 1);
  settings.data.shuffle = false;
  settings.train.epochs = 2;
  const auto rounds = plan_epochs(settings, 5, 2);
  EXPECT_EQ(rounds.steps_per_epoch, 1);
  EXPECT_EQ(rounds.total_steps, 2);
  TrainingState state;
  EXPECT_EQ(take(feed_of(settings, 5, {.rank = 0, .world = 2}), state), (std::vector<Step>{{{0, 2, 4}}}));
  settings.data.drop_last_batch = true;
  EXPECT_THROW(plan_epochs(settings, 5, 2), InputError);
}

// Batches of the next step, too: what is looked at is what comes, and a place in the epoch does not move.
TEST(Feed, LooksAheadWhereWorkersMakeTheBatches) {
  auto settings = feed_settings(2, 2);
  TrainingState plain, state;
  const auto all = take(feed_of(settings, 9), plain);
  settings.data.workers = 2;
  std::vector<Step> seen;
  std::vector<Indices> ahead;
  const auto feed = feed_of(settings, 9);
  auto epoch = feed.epoch(state);
  while (epoch.next_step()) {
    auto& step = seen.emplace_back();
    while (const auto* batch = epoch.next_batch()) {
      step.push_back(batch->indices);
      const auto* next = batch->indices == all.back().back() ? nullptr : made_ahead(epoch);
      EXPECT_EQ(next, epoch.look_ahead());
      if (next) ahead.push_back(next->indices);
      EXPECT_EQ(step.back(), batch->indices);
    }
    epoch.advance(state);
    EXPECT_EQ(state.consumed, std::min<int64_t>(9, 4 * state.step));
  }
  EXPECT_EQ(seen, all);
  Indices order, later;
  for (const auto& step : all)
    for (const auto& batch : step) order.insert(order.end(), batch.begin(), batch.end());
  for (const auto& batch : ahead) later.insert(later.end(), batch.begin(), batch.end());
  EXPECT_EQ(later, Indices(order.begin() + 2, order.end()));
}

// An error belongs to the step whose batch it is.
TEST(Feed, SaysAnErrorWhenItsBatchIsDue) {
  struct Broken : Numbers {
    using Numbers::Numbers;
    Batch get(at::ArrayRef<int64_t> indices, bool) const override {
      if (indices[0] >= 4) throw std::runtime_error("no such sample");
      return {torch::zeros({1}), {}};
    }
  };
  auto settings = feed_settings(2, 1);
  settings.data.shuffle = false;
  settings.data.workers = 1;
  TrainingState state;
  const Feed feed(settings, std::make_shared<Broken>(8), 0, 1, at::kCPU);
  auto epoch = feed.epoch(state);
  EXPECT_THROW(
      {
        while (epoch.next_step()) {
          while (epoch.next_batch()) made_ahead(epoch, std::chrono::milliseconds(50));
          epoch.advance(state);
        }
      },
      std::runtime_error);
  EXPECT_EQ(state.step, 2);
}

TEST(Feed, SaysWhereNothingIsLeft) {
  auto settings = feed_settings(4, 1);
  settings.data.drop_last_batch = true;
  TrainingState state;
  state.consumed = 4;
  state.step_in_epoch = 1;
  EXPECT_TRUE(take(feed_of(settings, 6), state).empty());
  EXPECT_TRUE(state.epoch_trained);
  EXPECT_EQ(state.step, 0);
}

// Python's DataLoader draws at the start of a pass; a pass that goes on had drawn before.
TEST(Feed, DrawsOneNumberAtAnEpochsStartAndNoneInside) {
  const auto drawn_after = [](int64_t consumed) {
    torch::manual_seed(1);
    TrainingState state;
    state.consumed = consumed;
    const auto feed = feed_of(feed_settings(2, 1), 8);
    feed.epoch(state);
    return torch::rand({}, torch::kFloat64).item<double>();
  };
  torch::manual_seed(1);
  const double undisturbed = torch::rand({}, torch::kFloat64).item<double>();
  EXPECT_NE(drawn_after(0), undisturbed);
  EXPECT_EQ(drawn_after(4), undisturbed);
}

}  // namespace
}  // namespace lockstep::train
