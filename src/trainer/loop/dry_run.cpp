// `train --dry-run`: everything up to the first step, and what the rest would cost.
#include <sys/resource.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/launch/process/spawn_ranks.h"
#include "trainer/config/keys.h"
#include "trainer/loop/run.h"
#include "trainer/loop/run_log.h"
#include "trainer/run_folder/console.h"
#include "trainer/step/step.h"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

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

// The seconds of a step. One forward and backward on the first batch is tried; accumulating steps have more.
double try_step(const Feed& feed, TrainingStep& step, int64_t accumulate) {
  using Clock = std::chrono::steady_clock;
  TrainingState start;
  LossTrace losses;
  PhaseClock clock;
  auto epoch = feed.epoch(start);
  step.begin_epoch(epoch.order());
  const auto begin = Clock::now();
  epoch.next_step();
  step.run(1, epoch, losses, clock);
  losses.read_pending();
  return std::chrono::duration<double>(Clock::now() - begin).count() * static_cast<double>(accumulate);
}

// What the training would be, and cost.
Json facts_of(const Setup& setup, const Learner& learner, const Size& whole, double rank_bytes,
              double step_seconds) {
  const auto& s = setup.settings;
  const auto model = config::chosen_name(s, "model.name");
  Json json = {
      {"task", s.task.name},
      {"model", model.empty() ? "the task's own" : model},
      {"parameters", whole.parameters},
      {"model_mb", megabytes(whole.bytes)},
      {"optimizer", s.optim.name},
      {"schedule", s.schedule.name},
      {"rank_mb", megabytes(rank_bytes)},
      {"peak_mb", peak_megabytes()},
      {"ranks", setup.team->world()},
      {"ranks_in_a_process", s.train.as_world > 0 ? launch::spawned_rank_count() : 0},
      {"launcher", setup.team->job().launcher},
      {"device", setup.team->device().str()},
      {"threads", setup.session->threads()},
      {"mode", word_of(s.train.mode)},
      {"layout", word_of(s.train.layout)},
      {"steps_per_epoch", learner.rounds.steps_per_epoch},
      {"samples_per_step", s.data.batch_size * s.train.accumulate * setup.mesh->data().world()},
      {"steps", learner.rounds.total_steps},
      {"step_seconds", step_seconds},
      {"seconds", step_seconds * static_cast<double>(learner.rounds.total_steps)},
  };
  if (const auto gpu = peak_gpu_memory(*setup.team))
    json["gpu_peak_mb"] = megabytes(gpu->peak), json["gpu_mb"] = megabytes(gpu->total);
  return json;
}

// For people.
std::string lines_of(const Json& facts, const std::string& samples, bool is_share) {
  const auto text = [&](const char* key) { return facts[key].get<std::string>(); };
  const auto whole = [&](const char* key) { return facts[key].get<int64_t>(); };
  const auto number = [&](const char* key) { return facts[key].get<double>(); };
  std::string lines = format("task        {}: {}\n", text("task"), samples);
  lines += format("model       {}: {} parameters, {:.1f} MB{}\n", text("model"), whole("parameters"),
                  number("model_mb"), is_share ? ", rank 0's share" : "");
  lines += format("optimizer   {}, schedule {}\n", text("optimizer"), text("schedule"));
  if (text("layout") != word_of(ImageLayout::nchw)) lines += format("layout      {}\n", text("layout"));
  lines +=
      format("memory      {:.1f} MB per rank for parameters, gradients and optimizer; peak so far {:.0f} MB",
             number("rank_mb"), number("peak_mb"));
  if (facts.contains("gpu_mb"))
    lines += format(", and {:.0f} MB of a GPU's {:.0f}", number("gpu_peak_mb"), number("gpu_mb"));
  if (const auto together = whole("ranks_in_a_process"); together > 1)
    lines += format("\n            {} ranks per process: {:.1f} MB", together,
                    static_cast<double>(together) * number("rank_mb"));
  lines += format("\nranks       {}, launcher {}, {}, {} each, mode {}\n", whole("ranks"), text("launcher"),
                  text("device"), base::counted(whole("threads"), "thread"), text("mode"));
  lines += format("steps       {} per epoch, each of {} samples over all ranks; {} in total\n",
                  whole("steps_per_epoch"), whole("samples_per_step"), whole("steps"));
  lines += format("time        {} per step, about {} of training\n",
                  run_folder::step_time(number("step_seconds")), run_folder::short_time(number("seconds")));
  return lines + "Dry run complete. Nothing was written.";
}

}  // namespace

int dry_run(const Command& command, bool as_json) {
  auto begun = begin_job(command);
  if (spawns_ranks(begun)) return spawn_ranks(std::move(begun));
  auto setup = set_up(command, std::move(begun));
  choose_layout(setup);
  auto learner = make_learner(setup);
  move_to_device(setup);
  double step_seconds = 0;
  TrainingStep step(setup, learner);
  learner.source->prepare(learner.model->net(), TrainingState{});
  auto single = setup.settings;
  single.train.accumulate = 1;
  const auto feed = learner.source->feed(single);
  for (int i = 0; i < kTries; ++i) step_seconds = try_step(feed, step, setup.settings.train.accumulate);
  const auto size = size_of(*learner.model);
  std::vector<double> whole{static_cast<double>(size.parameters), size.bytes};
  setup.mesh->pipeline().sum(whole);  // over the stages
  const double rank_bytes = 2 * size.bytes + static_cast<double>(state_bytes_of(*learner.optimizer));
  const auto facts =
      facts_of(setup, learner, {static_cast<int64_t>(whole[0]), whole[1]}, rank_bytes, step_seconds);
  if (setup.team->first())
    output::line(as_json ? base::as_line(facts)
                         : lines_of(facts, learner.source->description(), setup.mesh->tensor().world() > 1));
  setup.team->barrier();
  return kDone;
}

}  // namespace lockstep::train
