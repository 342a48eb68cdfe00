// `train --dry-run`: everything up to the first step, and what the rest would cost.
#include <sys/resource.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/launch/process/spawn_ranks.h"
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
  losses.read_pending();
  return std::chrono::duration<double>(Clock::now() - begin).count() * static_cast<double>(accumulate);
}

Feed feed_of_single_batches(const Setup& setup, const Learner& learner) {
  auto settings = setup.settings;
  settings.train.accumulate = 1;
  return learner.source->feed(settings);
}

// What the training would be, and cost.
struct Outlook {
  const Setup& setup;
  const Learner& learner;
  Size whole;  // of the model, over its stages
  double rank_megabytes = 0;
  double step_seconds = 0;
  std::optional<GpuMemory> gpu;

  const Settings& settings() const { return setup.settings; }
  std::string model() const {
    const auto name = config::chosen_name(settings(), "model.name");
    return name.empty() ? "the task's own" : name;
  }
  int64_t samples() const {
    return settings().data.batch_size * settings().train.accumulate * setup.mesh->data().world();
  }
  double seconds() const { return step_seconds * static_cast<double>(learner.rounds.total_steps); }
};

std::vector<std::string> lines_of(const Outlook& outlook) {
  const auto& s = outlook.settings();
  const auto& [setup, learner, whole, rank_megabytes, step_seconds, gpu] = outlook;
  std::vector<std::string> lines;
  lines.push_back(format("task        {}: {}", s.task.name, learner.source->description()));
  lines.push_back(format("model       {}: {} parameters, {:.1f} MB{}", outlook.model(), whole.parameters,
                         megabytes(whole.bytes),
                         setup.mesh->tensor().world() == 1 ? "" : ", rank 0's share"));
  lines.push_back(format("optimiser   {}, schedule {}", s.optim.name, s.schedule.name));
  if (s.train.layout != ImageLayout::nchw) lines.push_back("layout      " + word_of(s.train.layout));
  lines.push_back(format(
      "memory      {:.1f} MB a rank for parameters, gradients and optimiser; peak so far {:.0f} MB{}",
      rank_megabytes, peak_megabytes(),
      gpu ? format(", and {:.0f} MB of a GPU's {:.0f}", megabytes(gpu->peak), megabytes(gpu->total)) : ""));
  if (const int together = launch::spawned_together(); together > 1)
    lines.push_back(
        format("            {} ranks in a process: {:.1f} MB", together, together * rank_megabytes));
  lines.push_back(format("ranks       {} ({}), {}, {} thread(s) each, mode {}", setup.team->world(),
                         setup.team->job().launcher, setup.team->device().str(), setup.session->threads(),
                         word_of(s.train.mode)));
  lines.push_back(format("steps       {} an epoch of {} samples together, {} in all",
                         learner.rounds.steps_per_epoch, outlook.samples(), learner.rounds.total_steps));
  lines.push_back(format("time        {:.3g} ms a step, about {} of training", 1e3 * step_seconds,
                         run_folder::short_time(outlook.seconds())));
  lines.emplace_back("A dry run: nothing was written.");
  return lines;
}

std::string json_of(const Outlook& outlook) {
  const auto& s = outlook.settings();
  const auto& [setup, learner, whole, rank_megabytes, step_seconds, gpu] = outlook;
  nlohmann::ordered_json json = {
      {"task", s.task.name},
      {"model", outlook.model()},
      {"parameters", whole.parameters},
      {"model_mb", megabytes(whole.bytes)},
      {"optimizer", s.optim.name},
      {"schedule", s.schedule.name},
      {"rank_mb", rank_megabytes},
      {"peak_mb", peak_megabytes()},
      {"ranks", setup.team->world()},
      {"ranks_in_a_process", launch::spawned_together()},
      {"launcher", setup.team->job().launcher},
      {"device", setup.team->device().str()},
      {"threads", setup.session->threads()},
      {"mode", word_of(s.train.mode)},
      {"layout", word_of(s.train.layout)},
      {"steps_per_epoch", learner.rounds.steps_per_epoch},
      {"samples_per_step", outlook.samples()},
      {"steps", learner.rounds.total_steps},
      {"step_seconds", step_seconds},
      {"seconds", outlook.seconds()},
  };
  if (gpu) json["gpu_peak_mb"] = megabytes(gpu->peak), json["gpu_mb"] = megabytes(gpu->total);
  return base::as_line(json);
}

}  // namespace

int dry_run(const Command& command, bool as_json) {
  auto begun = begin_job(command);
  if (carries_ranks(begun)) return carry_ranks(std::move(begun));
  auto setup = set_up(command, std::move(begun));
  settle_layout(setup);
  auto learner = make_learner(setup);
  hold_on_device(setup);
  double step_seconds = 0;
  TrainingStep step(setup, learner);
  learner.source->prepare(learner.model->net(), TrainingState{});
  const auto feed = feed_of_single_batches(setup, learner);
  for (int i = 0; i < kTries; ++i) step_seconds = try_step(feed, step, setup.settings.train.accumulate);
  const auto size = size_of(*learner.model);
  std::vector<double> whole{static_cast<double>(size.parameters), size.bytes};
  setup.mesh->pipeline().sum(whole);  // over the stages
  const double rank_bytes = 2 * size.bytes + static_cast<double>(state_bytes_of(*learner.optimizer));
  const Outlook outlook{.setup = setup,
                        .learner = learner,
                        .whole = {static_cast<int64_t>(whole[0]), whole[1]},
                        .rank_megabytes = megabytes(rank_bytes),
                        .step_seconds = step_seconds,
                        .gpu = peak_gpu_memory(*setup.team)};
  if (setup.team->first()) {
    for (const auto& line : as_json ? std::vector{json_of(outlook)} : lines_of(outlook)) output::line(line);
  }
  setup.team->barrier();
  return kDone;
}

}  // namespace lockstep::train
