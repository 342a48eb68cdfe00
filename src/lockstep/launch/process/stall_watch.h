#pragma once
// Acts where work that gives signs of progress has given none for too long: the host may stand inside a call
// that cannot be interrupted. A suspension of the job does not count.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::launch {

class StallWatch {
 public:
  struct Limits {
    std::chrono::milliseconds longest;  // without a sign
    /// Asked some ten times a second once a sign is a second late.
    std::function<bool()> is_hopeless = nullptr;
  };
  /// `action` is called once, from a thread of its own.
  StallWatch(Limits limits, std::function<void()> action);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  /// A sign of progress, from which on it counts. Costs one addition.
  void sign() { signs_.fetch_add(1, std::memory_order_relaxed); }
  /// Nothing is under way: it counts no more.
  void rest() { signs_.store(0, std::memory_order_relaxed); }

 private:
  void look(const Limits& limits, const std::function<void()>& action);

  std::atomic<std::uint64_t> signs_ = 0;  // 0: at rest
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace lockstep::launch
