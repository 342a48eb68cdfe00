#include "trainer/run_folder/recorder.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::run_folder {
namespace {

using Clock = std::chrono::steady_clock;

void say_stand_still(Clock::duration slept, std::chrono::milliseconds beat) {
  if (slept < 4 * beat) return;
  log::warning(
      format("the process stood still for {:.0f} s: was the job suspended? The ranks' timeouts do "
             "not count that",
             std::chrono::duration<double>(slept).count()));
}

}  // namespace

Recorder::Recorder(std::shared_ptr<HeldFolder> folder, RunStatus status, int64_t metrics_offset,
                   std::chrono::milliseconds beat)
    : folder_(std::move(folder)),
      status_(std::move(status)),
      home_(folder_->path()),
      metrics_(std::make_unique<MetricsFile>(home_ / "metrics.jsonl", metrics_offset)),
      events_(std::make_unique<EventFile>(home_, status_.step)) {
  write_status(home_, status_, [this] { folder_->check(home_); });
  heart_ = std::thread([this, beat] { keep_beating(beat); });
}

Recorder::~Recorder() {
  {
    const std::lock_guard lock(over_mutex_);
    over_ = true;
  }
  over_changed_.notify_all();
  heart_.join();
}

void Recorder::keep_beating(std::chrono::milliseconds beat) {
  const auto pause = std::min<std::chrono::milliseconds>(beat / 5, std::chrono::seconds(1));
  std::unique_lock lock(over_mutex_);
  for (auto asleep = Clock::now();; asleep = Clock::now()) {
    if (over_changed_.wait_for(lock, pause, [this] { return over_; })) return;
    over_changed_.wait_for(lock, beat - pause, [this] { return over_ || wanted_; });
    if (over_) return;
    wanted_ = false;
    lock.unlock();
    say_stand_still(Clock::now() - asleep, beat);
    try {
      write();
    } catch (const FolderTaken&) {
      return;  // the trainer hears of it at its next note()
    }
    lock.lock();
  }
}

// The thread of its own asks whose the folder is: a log line opens no file.
void Recorder::add(const StepRecord& r) {
  folder_->refuse_if_taken();
  const std::lock_guard lock(files_);
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
    curves.emplace_back(r.curves + "/" + name, value);
  }
  line.emplace_back("seconds", r.seconds);
  line.emplace_back("samples_per_second", r.samples_per_second);
  folder_->refuse_if_taken();
  const std::lock_guard lock(files_);
  guarded([&] { metrics_->add(line); });
  guarded([&] { events_->add(r.step, curves); });
}

void Recorder::note(const std::function<void(RunStatus&)>& change) {
  folder_->refuse_if_taken();
  const std::lock_guard lock(status_mutex_);
  change(status_);
}

void Recorder::update(const std::function<void(RunStatus&)>& change) {
  note(change);
  write();
}

void Recorder::update_soon(const std::function<void(RunStatus&)>& change) {
  note(change);
  const std::lock_guard lock(over_mutex_);
  if (!std::exchange(wanted_, true)) over_changed_.notify_all();
}

void Recorder::write() {
  const std::lock_guard order(writing_);
  guarded([this] {
    const auto where = home();
    std::unique_lock lock(status_mutex_);
    const auto status = status_;
    lock.unlock();
    write_status(where, status, [&] { folder_->check(where); });
  });
}

void Recorder::saved(const std::string& checkpoint) {
  update([&](RunStatus& status) {
    status.checkpoint = "checkpoints/" + std::filesystem::path(checkpoint).filename().string();
    status.unsaved.clear();
  });
  const std::lock_guard lock(files_);
  metrics_->forget_cut();
}

void Recorder::not_saved(const std::string& reason) {
  note([&](RunStatus& status) { status.unsaved = reason; });
}

bool Recorder::holds(const std::string& checkpoint) {
  return std::filesystem::path(checkpoint).parent_path() == home() / "checkpoints";
}

void Recorder::last_word(const std::string& reason) noexcept {
  try {
    update([&](RunStatus& status) {
      status.state = RunState::failed;
      status.reason = reason;
    });
  } catch (const std::exception& error) {
    log::warning(describe(error));
  }
}

// Where to write now.
std::filesystem::path Recorder::home() {
  const std::lock_guard lock(files_);
  follow();
  return home_;
}

// The files go on in the successor of a folder that was removed.
void Recorder::follow() {
  const auto now = folder_->path();
  if (now == home_) return;
  metrics_->move_to(now / "metrics.jsonl");
  home_ = now;
  const std::lock_guard lock(status_mutex_);
  status_.checkpoint.clear();
  events_ = std::make_unique<EventFile>(home_, status_.step);
}

void Recorder::guarded(const std::function<void()>& write) {
  try {
    write();
  } catch (const FolderTaken&) {
    throw;
  } catch (const std::exception& error) {
    if (!warned_.exchange(true)) log::warning(describe(error) + "\nTraining goes on.");
  }
}

}  // namespace lockstep::run_folder
