#pragma once
// What rank 0 leaves in the run's folder while it trains. A full disk costs curves, never the run.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "trainer/run_folder/event_file.h"
#include "trainer/run_folder/held_folder.h"
#include "trainer/run_folder/metrics_file.h"
#include "trainer/run_folder/status.h"

namespace lockstep::run_folder {

struct StepRecord {
  int64_t step = 0, epoch = 0;
  double loss = 0, lr = 0, samples_per_second = 0;
};

struct EpochRecord {
  int64_t step = 0, epoch = 0;
  double train_loss = 0, seconds = 0, samples_per_second = 0;
  std::vector<std::pair<std::string, double>> metrics;  // "loss" first; empty = not evaluated
  std::string curves = "eval";                          // TensorBoard's group of these
};

class Recorder {
 public:
  /// Continues metrics.jsonl after `metrics_offset` bytes. A thread of its own renews status.json at each
  /// `beat`, so that a run in a long step or evaluation is known to live: a twelfth of what counts as dead.
  Recorder(std::shared_ptr<HeldFolder> folder, RunStatus status, int64_t metrics_offset,
           std::chrono::milliseconds beat = std::chrono::seconds(5));
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // All of these throw FolderTaken; other errors are warnings. From any thread, but for add().
  void add(const StepRecord& record);
  void add(const EpochRecord& record);
  int64_t metrics_offset() const { return metrics_->offset(); }
  /// Changes what status.json says when it is written next.
  void note(const std::function<void(RunStatus&)>& change);
  /// Changes status.json.
  void update(const std::function<void(RunStatus&)>& change);
  /// The same within a second, by the thread of its own: short epochs wait for no disk.
  void update_soon(const std::function<void(RunStatus&)>& change);
  /// A checkpoint of this attempt is whole.
  void saved(const std::string& checkpoint);
  /// One could not be written: what status.json says of it from its next writing on, until one is whole.
  void not_saved(const std::string& reason);

  /// Does the checkpoint lie where the run now writes?
  bool holds(const std::string& checkpoint);

  /// Says that the run has failed, as far as that is possible: for a thread in which nothing may be thrown.
  void last_word(const std::string& reason) noexcept;

 private:
  void keep_beating(std::chrono::milliseconds beat);
  void write();
  std::filesystem::path home();
  void follow();
  void guarded(const std::function<void()>& write);

  std::shared_ptr<HeldFolder> folder_;
  std::mutex status_mutex_;  // of status_ alone, held for moments: training never waits for a disk here
  RunStatus status_;
  std::mutex writing_;  // status.json: what is written last is the newest
  std::mutex files_;    // home_ and the files in it
  std::filesystem::path home_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<EventFile> events_;
  std::atomic<bool> warned_ = false;
  std::mutex over_mutex_;
  std::condition_variable over_changed_;
  bool over_ = false;
  bool wanted_ = false;  // status.json, before the next beat
  std::thread heart_;    // last: it uses all of the above
};

}  // namespace lockstep::run_folder
