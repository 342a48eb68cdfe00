#include "train/recorder.h"

#include "base/error.h"
#include "base/log.h"

namespace lockstep::train {
namespace {
constexpr auto kBeat = std::chrono::seconds(5);
}

Recorder::Recorder(std::filesystem::path folder, RunStatus status, int64_t metrics_offset)
    : folder_(std::move(folder)),
      status_(std::move(status)),
      last_beat_(std::chrono::steady_clock::now()),
      metrics_(std::make_unique<MetricsFile>(folder_ / "metrics.jsonl", metrics_offset)),
      events_(std::make_unique<EventFile>(folder_, status_.step)) {
  write_status(folder_, status_);
}

void Recorder::add(const StepRecord& r) {
  guarded([&] {
    metrics_->add({{"event", "step"},
                   {"step", r.step},
                   {"epoch", r.epoch},
                   {"loss", r.loss},
                   {"lr", r.lr},
                   {"samples_per_second", r.samples_per_second}});
  });
  guarded([&] {
    events_->add(
        r.step,
        {{"train/loss", r.loss}, {"train/lr", r.lr}, {"train/samples_per_second", r.samples_per_second}});
  });
}

void Recorder::add(const EpochRecord& r) {
  MetricLine line{{"event", "epoch"}, {"epoch", r.epoch}, {"step", r.step}, {"train_loss", r.train_loss}};
  std::vector<std::pair<std::string, double>> curves{{"epoch/train_loss", r.train_loss},
                                                     {"epoch/seconds", r.seconds}};
  for (const auto& [name, value] : r.metrics) {
    line.emplace_back(name == "loss" ? "eval_loss" : name, value);
    curves.emplace_back("eval/" + name, value);
  }
  line.emplace_back("seconds", r.seconds);
  line.emplace_back("samples_per_second", r.samples_per_second);
  guarded([&] { metrics_->add(line); });
  guarded([&] { events_->add(r.step, curves); });
}

void Recorder::update(const std::function<void(RunStatus&)>& change) {
  const std::lock_guard lock(mutex_);
  change(status_);
  guarded([&] { write_status(folder_, status_); });
  last_beat_ = std::chrono::steady_clock::now();
}

void Recorder::beat(const std::function<void(RunStatus&)>& change) {
  if (std::chrono::steady_clock::now() - last_beat_ >= kBeat) update(change);
}

void Recorder::guarded(const std::function<void()>& write) {
  try {
    write();
  } catch (const std::exception& error) {
    if (!warned_) log::warning(describe(error) + "\nTraining goes on.");
    warned_ = true;
  }
}

}  // namespace lockstep::train
