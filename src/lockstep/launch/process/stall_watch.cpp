#include "lockstep/launch/process/stall_watch.h"

#include <utility>

#include "lockstep/base/awake.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};
constexpr std::chrono::seconds kLate{1};

}  // namespace

StallWatch::StallWatch(Limits limits, std::function<void()> action)
    : thread_([this, limits = std::move(limits), action = std::move(action)] { look(limits, action); }) {}

void StallWatch::look(const Limits& limits, const std::function<void()>& action) {
  std::uint64_t seen = 0;
  base::AwakeTime silent;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kBetweenLooks, [this] { return ended_; })) {
    const auto now = signs_.load(std::memory_order_relaxed);
    if (now != std::exchange(seen, now) || now == 0) silent = {};
    const auto passed = silent.passed();
    const bool hopeless = passed > kLate && limits.is_hopeless && limits.is_hopeless();
    if (passed <= limits.longest && !hopeless) continue;
    lock.unlock();
    return action();
  }
}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

}  // namespace lockstep::launch
