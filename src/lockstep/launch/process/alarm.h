#pragma once
// A bound on a call that cannot be interrupted: unless the alarm is gone before this process has been awake
// for so long, it acts from its own thread.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/launch/identify.h"

namespace lockstep::launch {

class Alarm {
 public:
  /// Zero or less never rings.
  Alarm(std::chrono::milliseconds delay, std::function<void()> action);
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;
  std::thread thread_;
};

// Acts where work that gives signs of progress has given none for too long: the host may stand inside a call
// that cannot be interrupted. A suspension of the job does not count.

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

// A SIGTERM may mean that a peer is dead and the launcher is clearing up: nobody is left to agree with, and
// the launcher's SIGKILL comes 1.9 s later (Open MPI 4). A bounded wait, then this rank leaves by itself.

/// How long a rank may look for agreement after a SIGTERM.
double grace_seconds(const Job& job, const Environment& environment);

/// Calls `give_up` from its own thread when a SIGTERM is older than the patience, counted in time in which
/// this process was not suspended, and nobody has called agreed().
class Grace {
 public:
  Grace(double seconds, std::function<void()> give_up);
  ~Grace();
  Grace(const Grace&) = delete;
  Grace& operator=(const Grace&) = delete;

  void agreed() { agreed_ = true; }

 private:
  std::atomic<bool> agreed_{false}, over_{false};
  std::thread thread_;
};

}  // namespace lockstep::launch
