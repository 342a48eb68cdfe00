#include "lockstep/launch/job_end.h"

namespace lockstep::launch {

JobEnd::JobEnd(const Job& job, const Environment& environment, std::chrono::milliseconds margin,
               std::chrono::milliseconds wait)
    : job_(job), environment_(environment), margin_(margin) {
  ask();
  if (end_ || !has_scheduler(job_)) return;
  asks_again_ = std::thread([this, wait]() mutable {
    std::unique_lock lock(mutex_);
    for (; !end_ && !leaves_.wait_for(lock, wait, [this] { return left_; }); wait *= 2) {
      lock.unlock();
      ask();
      lock.lock();
    }
  });
}

JobEnd::~JobEnd() {
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
  }
  leaves_.notify_all();
  if (asks_again_.joinable()) asks_again_.join();
}

std::optional<Time> JobEnd::known() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

void JobEnd::ask() {
  const auto end =
      end_to_leave_before(job_deadline(job_, environment_), margin_, std::chrono::system_clock::now());
  const std::lock_guard lock(mutex_);
  end_ = end;
}

}  // namespace lockstep::launch
