// Captured steps against plain ones, to the bit, with a graph that replays on the CPU by working again.
#include "trainer/step/step.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "lockstep/data/image_set.h"
#include "lockstep/data/table_set.h"
#include "lockstep/optim/grad_scaler.h"
#include "loop/alone.h"
#include "trainer/loop/checkpoints.h"
#include "trainer/step/feed.h"

namespace lockstep::train {
namespace {

constexpr int64_t kSamples = 50, kBatch = 8, kFull = 6, kSteps = 7;  // the last of an epoch has two samples

/// As a CUDA graph: nothing happens when it is captured.
class DoneAgain : public comm::StepGraph {
 public:
  void capture(const std::function<void()>& work) override {
    work_ = work;
    ++captures;
  }
  void replay() override {
    work_();
    ++replays;
  }
  int captures = 0, replays = 0;

 private:
  std::function<void()> work_;
};

struct Small : Net {
  Small() {
    register_module("conv", conv);
    register_module("fc", fc);
  }
  torch::Tensor forward(const torch::Tensor& input) override {
    return fc->forward(torch::relu(conv->forward(input)).reshape({input.size(0), -1}));
  }
  torch::nn::Conv2d conv{
      torch::nn::Conv2dOptions(1, 6, 3).padding(1)};  // one channel: strides that say nothing
  torch::nn::Linear fc{6 * 5 * 4, 3};
};

class Images : public Task {
 public:
  TaskData data(const TaskConfig&, const NodeShare&) override {
    const auto bytes = torch::arange(kSamples * 20).mul(7919).remainder(251).to(torch::kByte);
    const auto labels = torch::arange(kSamples).remainder(3).to(torch::kByte);
    TaskData all;
    all.train =
        std::make_shared<ImageSet>(bytes.view({kSamples, 1, 5, 4}), labels, normalize_table({0.3}, {0.2}));
    return all;
  }
};

Settings settings_of(const std::string& optimizer = "sgd") {
  Settings settings;
  settings.data.batch_size = kBatch;
  settings.data.workers = 0;
  settings.optim.name = optimizer;
  settings.optim.lr = 0.05;
  settings.train.epochs = 6;
  return settings;
}

/// A run of one process; `captured` or with the same optimizer plainly, from samples that the loader makes.
struct Rehearsal {
  Rehearsal(const Settings& asked, bool captured, std::shared_ptr<Net> net = nullptr) {
    setup.settings = asked;
    setup.settings.train.graph = setup.settings.data.resident = captured;
    const auto& settings = setup.settings;
    setup.team = &team;
    setup.mesh = std::make_unique<Mesh>(team);
    setup.task = std::make_unique<Images>();
    setup.data = setup.task->data(settings.for_task(), {});
    torch::manual_seed(3);
    learner.source = std::make_unique<test::NoSource>();
    learner.rounds = plan_epochs(settings, kSamples, 1);
    learner.model = make_trained_model(net ? net : std::make_shared<Small>(), *setup.mesh, settings, {});
    learner.optimizer = make_optimizer(settings.optim, learner.model->parameters());
    EXPECT_TRUE(learner.optimizer->fuse());
    learner.schedule = make_schedule(settings.schedule, *learner.optimizer, learner.rounds.total_steps,
                                     settings.train.epochs);
    learner.memory = Tree();
    if (captured) {
      auto made = std::make_unique<DoneAgain>();
      graph = made.get();
      learner.graph = std::move(made);
    }
  }

  /// As the trainer does. With so many steps between two looks at the losses.
  void train(int64_t steps, int64_t look_every = 1) {
    if (!step) {
      move_to_device(setup);
      step.emplace(setup, learner);
      feed.emplace(setup.settings, setup.data.train, team);
    }
    while (steps > 0) {
      if (state.consumed == 0) trace.restart();
      auto epoch = feed->epoch(state);
      step->begin_epoch(epoch.order());
      while (epoch.next_step()) {
        if (change_before == state.step) learner.optimizer->set_momentum(0.5, 0);
        step->run(state.step + 1, epoch, trace, clock);
        epoch.advance(state);
        if (learner.schedule->per_step()) learner.schedule->step();
        if (state.step % look_every == 0) {
          trace.read_pending();
          losses.push_back(trace.last());
        }
        if (--steps == 0) break;
      }
      if (!state.epoch_trained) break;
      if (!learner.schedule->per_step()) learner.schedule->step();
      ++state.epoch;
      state.consumed = state.step_in_epoch = 0;
      state.epoch_trained = false;
    }
    trace.read_pending();
  }

  Team team{{}, nullptr, at::kCPU};
  Setup setup;
  Learner learner;
  DoneAgain* graph = nullptr;
  std::optional<TrainingStep> step;
  std::optional<Feed> feed;
  TrainingState state;
  LossTrace trace;
  PhaseClock clock;
  std::vector<double> losses;
  int64_t change_before = -1;  // the momentum, when so many steps are taken
};

void expect_same(const Rehearsal& a, const Rehearsal& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.trace.sum(), b.trace.sum());
  EXPECT_EQ(a.trace.count(), b.trace.count());
  const auto ours = a.learner.model->parameters(), theirs = b.learner.model->parameters();
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(torch::equal(ours[i], theirs[i])) << i;
}

// Both ways over so many steps, with equal outcome; the captured one is returned.
std::unique_ptr<Rehearsal> expect_plain_bits(const Settings& settings, int64_t steps = 3 * kSteps + 2,
                                             int64_t change_before = -1) {
  Rehearsal plain(settings, false);
  auto captured = std::make_unique<Rehearsal>(settings, true);
  plain.change_before = captured->change_before = change_before;
  plain.train(steps);
  captured->train(steps);
  expect_same(*captured, plain);
  return captured;
}

TEST(CapturedStep, HasThePlainStepsBitsAndFollowsARateThatMoves) {
  const std::pair<const char*, void (*)(Settings&)> cases[] = {
      {"sgd", [](Settings&) {}},
      {"adam",
       [](Settings& s) {
         s.optim.name = "adam";
         s.optim.lr = 0.01;
       }},
      {"adamw",
       [](Settings& s) {
         s.optim.name = "adamw";
         s.optim.lr = 0.01;
       }},
      {"clipping, smoothing, decay and channels_last",
       [](Settings& s) {
         s.train.clip_norm = 0.5;
         s.train.label_smoothing = 0.1;
         s.train.layout = ImageLayout::channels_last;
         s.optim.weight_decay = 1e-3;
         s.optim.nesterov = true;
       }},
      {"bf16",
       [](Settings& s) {
         s.train.precision = Precision::bf16;
         s.train.layout = ImageLayout::channels_last;
       }},
      {"a rate that moves at each epoch",
       [](Settings& s) {
         s.schedule.name = "step";
         s.schedule.gamma = 0.5;
       }},
      {"a rate that moves at each step", [](Settings& s) {
         s.schedule.name = "one_cycle";
         s.schedule.max_lr = 0.1;
         s.schedule.cycle_momentum = false;
       }}};
  for (const auto& [what, change] : cases) {
    SCOPED_TRACE(what);
    auto settings = settings_of();
    change(settings);
    EXPECT_EQ(expect_plain_bits(settings)->graph->captures, 1);
  }
}

TEST(Step, ClipsGradientsThatTheScalerHasUnscaled) {
  auto settings = settings_of();
  settings.train.clip_norm = 0.5;
  Rehearsal plain(settings, false), scaled(settings, false);
  scaled.learner.scaler = std::make_unique<GradScaler>(at::kCPU, GradScalerOptions{.init_scale = 1024});
  plain.train(kSteps);
  scaled.train(kSteps);
  expect_same(scaled, plain);
}

TEST(CapturedStep, IsCapturedOnceAfterElevenPlainStepsAndTakesFullBatchesAlone) {
  const auto run = expect_plain_bits(settings_of(), 4 * kSteps);
  EXPECT_EQ(run->graph->captures, 1);
  EXPECT_EQ(run->graph->replays, 4 * kFull - CapturedStep::kPlainSteps);
}

TEST(CapturedStep, IsCapturedAnewWhereTheMomentumHasChanged) {
  const auto run = expect_plain_bits(settings_of(), 4 * kSteps, 2 * kSteps + 3);
  EXPECT_EQ(run->graph->captures, 2);
  EXPECT_EQ(run->graph->replays, 4 * kFull - CapturedStep::kPlainSteps - 1);
}

TEST(CapturedStep, GoesOnFromACheckpointInsideAnEpoch) {
  for (const char* optimizer : {"sgd", "adam"}) {
    SCOPED_TRACE(optimizer);
    const auto settings = settings_of(optimizer);
    Rehearsal whole(settings, true), first(settings, true), second(settings, true);
    whole.train(5 * kSteps);
    first.train(2 * kSteps + 3);  // while it replays
    EXPECT_GT(first.graph->replays, 0);
    first.state.loss_sum = first.trace.sum();
    first.state.loss_count = first.trace.count();
    const auto saved = snapshot(to_checkpoint(*first.setup.mesh, first.state, first.learner, ""));
    second.state = from_checkpoint(*second.setup.mesh, saved, "saved.pt", second.learner);
    second.trace.restart(second.state.loss_sum, second.state.loss_count);
    second.train(3 * kSteps - 3);
    second.losses.insert(second.losses.begin(), first.losses.begin(), first.losses.end());
    expect_same(second, whole);
    EXPECT_EQ(second.graph->replays, 3 * kFull - 3 - CapturedStep::kPlainSteps);
  }
}

// As an exported straight-through estimator has it: the sign's gradient is zero.
TEST(TrainingStep, NamesTheParametersThatGetNoGradient) {
  struct Signed : Small {
    Signed() {
      head = register_parameter("head", torch::ones({3}));
      unused = register_parameter("unused", torch::ones({3}));
      register_parameter("frozen", torch::ones({3}), /*requires_grad=*/false);
    }
    torch::Tensor forward(const torch::Tensor& input) override {
      return Small::forward(input) + torch::sign(head);
    }
    torch::Tensor head, unused;
  };
  Rehearsal run(settings_of(), false, std::make_shared<Signed>());
  run.train(2);
  EXPECT_EQ(run.step->take_untrained(), (std::vector<std::string>{"head", "unused"}));
  EXPECT_EQ(run.step->take_untrained(), std::vector<std::string>{});
}

TEST(CapturedStep, NamesTheSamplesOfALossThatIsNoNumber) {
  Rehearsal run(settings_of(), true);
  run.train(2 * kSteps);
  {
    const torch::NoGradGuard no_grad;
    run.learner.model->parameters()[0].fill_(NAN);
  }
  auto state = run.state;
  const auto order = run.feed->epoch(state).order();
  const int replays = run.graph->replays;
  run.train(3);
  EXPECT_EQ(run.graph->replays, replays + 3);
  ASSERT_TRUE(run.trace.bad());
  EXPECT_EQ(run.trace.bad()->step, 2 * kSteps + 1);
  std::vector<int64_t> first(kBatch);
  for (int64_t i = 0; i < kBatch; ++i) first[i] = order[i];
  EXPECT_EQ(run.trace.bad()->indices, first);
}

}  // namespace
}  // namespace lockstep::train
