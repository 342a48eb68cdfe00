#include "lockstep/launch/process/alarm.h"

#include <algorithm>

#include "lockstep/base/awake.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kLook{100};

}  // namespace

Alarm::Alarm(std::chrono::milliseconds delay, std::function<void()> action) {
  if (delay.count() <= 0) return;
  thread_ = std::thread([this, delay, action = std::move(action)] {
    std::unique_lock lock(mutex_);
    for (base::AwakeTime awake; awake.passed() < delay;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(delay - awake.passed());
      if (changed_.wait_for(lock, std::min(kLook, left), [this] { return cancelled_; })) return;
    }
    action();
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
