#pragma once
// Threads that act when something takes too long. They count time in which this process is awake, so that a
// suspended job is not late.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "lockstep/launch/identify.h"

namespace lockstep::launch {

/// Calls `is_done` every `pause` from a thread of its own, until that returns true or this object goes.
class PollingThread {
 public:
  PollingThread(std::chrono::milliseconds pause, std::function<bool()> is_done);

 private:
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;
};

/// A bound on a call that cannot be interrupted: acts unless the alarm is gone before the delay is over. A
/// delay of zero or less never acts.
class Alarm {
 public:
  Alarm(std::chrono::milliseconds delay, std::function<void()> action);

 private:
  PollingThread thread_;
};

/// Acts once where work that gives signs of progress has given none for too long.
class StallWatch {
 public:
  struct Limits {
    std::chrono::milliseconds longest;  // without a sign
    /// Asked some ten times a second once a sign is a second late.
    std::function<bool()> is_hopeless = nullptr;
  };
  StallWatch(Limits limits, std::function<void()> action);

  /// A sign of progress, from which on it counts. Costs one addition.
  void sign() { signs_.fetch_add(1, std::memory_order_relaxed); }
  /// Nothing is under way: it counts no more.
  void rest() { signs_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> signs_ = 0;  // 0: at rest
  PollingThread thread_;
};

// A SIGTERM may mean that a peer is dead and the launcher is clearing up: nobody is left to agree with, and
// the launcher's SIGKILL comes 1.9 s later (Open MPI 4). A bounded wait, then this rank leaves by itself.

/// How long a rank may look for agreement after a SIGTERM.
double grace_seconds(const Job& job, const Environment& environment);

/// Calls `give_up` once a SIGTERM is so many seconds old, unless agreed() was called.
class Grace {
 public:
  Grace(double seconds, std::function<void()> give_up);

  void agreed() { agreed_ = true; }

 private:
  std::atomic<bool> agreed_{false};
  PollingThread thread_;
};

}  // namespace lockstep::launch
