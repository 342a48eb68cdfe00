#pragma once
// What rank 0 leaves in the run's folder while it trains. A full disk costs curves, never the run.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>

#include "train/event_file.h"
#include "train/metrics_file.h"
#include "train/run_status.h"

namespace lockstep::train {

struct StepRecord {
  int64_t step = 0, epoch = 0;
  double loss = 0, lr = 0, samples_per_second = 0;
};

struct EpochRecord {
  int64_t step = 0, epoch = 0;
  double train_loss = 0, seconds = 0, samples_per_second = 0;
  std::vector<std::pair<std::string, double>> metrics;  // "loss" first; empty = not evaluated
};

class Recorder {
 public:
  /// Goes on with metrics.jsonl after `metrics_offset` bytes.
  Recorder(std::filesystem::path folder, RunStatus status, int64_t metrics_offset);

  void add(const StepRecord& record);
  void add(const EpochRecord& record);
  int64_t metrics_offset() const { return metrics_->offset(); }

  /// Changes status.json; from any thread. Errors are warnings here.
  void update(const std::function<void(RunStatus&)>& change);
  /// The same, at most once in a few seconds: the sign of life.
  void beat(const std::function<void(RunStatus&)>& change);

 private:
  void guarded(const std::function<void()>& write);

  std::filesystem::path folder_;
  std::mutex mutex_;
  RunStatus status_;
  std::chrono::steady_clock::time_point last_beat_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<EventFile> events_;
  bool warned_ = false;
};

}  // namespace lockstep::train
