// `train --dry-run`: everything up to the first step, and what the rest would cost.
#include <sys/resource.h>

#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/process/carry.h"
#include "lockstep/launch/process/runtime.h"
#include "trainer/config/chosen.h"
#include "trainer/loop/run.h"
#include "trainer/observe/gpu_memory.h"
#include "trainer/run_folder/console.h"
#include "trainer/setup/as_world.h"
#include "trainer/setup/choose_layout.h"
#include "trainer/step/step.h"

namespace lockstep::train {
namespace {

constexpr int kTries = 3;  // the first step pays for libtorch's own start

double megabytes(double bytes) {
  return bytes / (1 << 20);
}

struct Size {
  int64_t parameters = 0;
  double bytes = 0;
};

// This rank's.
Size size_of(TrainedModel& model) {
  Size size;
  for (const auto& tensor : model.parameters()) {
    size.parameters += tensor.numel();
    size.bytes += static_cast<double>(tensor.nbytes());
  }
  return size;
}

double peak_megabytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// The seconds of a step. One forward and backward on the first batch is tried; an accumulating step has
// several.
double try_step(const Feed& feed, TrainingStep& step, int64_t accumulate) {
  using Clock = std::chrono::steady_clock;
  TrainingState start;
  LossTrace losses;
  PhaseClock clock;
  auto epoch = feed.epoch(start);
  step.begin_epoch(epoch.order());
  const auto begin = Clock::now();
  step.run(1, *epoch.begin(), losses, clock);
  losses.settle();
  return std::chrono::duration<double>(Clock::now() - begin).count() * static_cast<double>(accumulate);
}

Feed feed_of_single_batches(const Setup& setup, const Learner& learner) {
  auto settings = setup.settings;
  settings.train.accumulate = 1;
  return learner.source->feed(settings);
}

}  // namespace

int dry_run(const Command& command) {
  auto begun = begin_job(command);
  if (carries_ranks(begun)) return carry_ranks(std::move(begun));
  auto setup = set_up(command, std::move(begun));
  settle_layout(setup);
  auto learner = make_learner(setup);
  hold_on_device(setup);
  const auto say = [first = setup.team->first()](const std::string& line) {
    if (first) output::line(line);
  };
  double step_seconds = 0;
  TrainingStep step(setup, learner);
  learner.source->prepare(learner.model->net(), TrainingState{});
  const auto feed = feed_of_single_batches(setup, learner);
  for (int i = 0; i < kTries; ++i) step_seconds = try_step(feed, step, setup.settings.train.accumulate);
  const auto size = size_of(*learner.model);
  std::vector<double> whole{static_cast<double>(size.parameters), size.bytes};
  setup.mesh->pipeline().sum(whole);  // over the stages
  const auto& rounds = learner.rounds;
  const auto& s = setup.settings;
  const int64_t grouped = s.data.batch_size * s.train.accumulate * setup.mesh->data().world();
  say(format("task        {}: {}", s.task.name, learner.source->description()));
  const auto model = config::chosen_name(s, "model.name");
  say(format("model       {}: {} parameters, {:.1f} MB{}", model.empty() ? "the task's own" : model,
             static_cast<int64_t>(whole[0]), megabytes(whole[1]),
             setup.mesh->tensor().world() == 1 ? "" : ", rank 0's share"));
  say(format("optimiser   {}, schedule {}", s.optim.name, s.schedule.name));
  if (s.train.layout != ImageLayout::nchw) say("layout      " + word_of(s.train.layout));
  const auto gpu = peak_gpu_memory(*setup.team);
  say(format(
      "memory      {:.1f} MB a rank for parameters, gradients and optimiser; peak so far {:.0f} MB{}",
      megabytes(2 * size.bytes + state_bytes_of(*learner.optimizer)), peak_megabytes(),
      gpu ? format(", and {:.0f} MB of a GPU's {:.0f}", megabytes(gpu->peak), megabytes(gpu->total)) : ""));
  if (const int together = launch::carried_together(); together > 1)
    say(format("            {} ranks in a process: {:.1f} MB", together,
               together * megabytes(2 * size.bytes + state_bytes_of(*learner.optimizer))));
  say(format("ranks       {} ({}), {}, {} thread(s) each, mode {}", setup.team->world(),
             setup.team->job().launcher, setup.team->device().str(), setup.session->threads(),
             word_of(s.train.mode)));
  say(format("steps       {} an epoch of {} samples together, {} in all", rounds.steps_per_epoch, grouped,
             rounds.total_steps));
  say(format("time        {:.3g} ms a step, about {} of training", 1e3 * step_seconds,
             run_folder::short_time(step_seconds * static_cast<double>(rounds.total_steps))));
  say("A dry run: nothing was written.");
  setup.team->barrier();
  return kDone;
}

}  // namespace lockstep::train
