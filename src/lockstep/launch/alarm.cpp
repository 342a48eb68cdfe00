#include "lockstep/launch/alarm.h"

namespace lockstep::launch {

Alarm::Alarm(std::chrono::milliseconds delay, std::function<void()> action) {
  if (delay.count() <= 0) return;
  thread_ = std::thread([this, delay, action = std::move(action)] {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, delay, [this] { return cancelled_; })) action();
  });
}

Alarm::~Alarm() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace lockstep::launch
