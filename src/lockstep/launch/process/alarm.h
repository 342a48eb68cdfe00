#pragma once
// Bounds on what may take too long. All count time in which this process ran, not that of a suspension, and
// act from the process's timer thread.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/base/timer.h"
#include "lockstep/launch/identify.h"

namespace lockstep::launch {

/// A bound on a call that cannot be interrupted: acts unless it is gone before the delay.
class Alarm {
 public:
  /// Zero or less never acts.
  Alarm(std::chrono::milliseconds delay, std::function<void()> action);

 private:
  std::unique_ptr<base::Timer> timer_;
};

/// Acts where work that gives signs of progress has given none for too long: the host may be inside a call
/// that cannot be interrupted.
class StallWatch {
 public:
  struct Limits {
    std::chrono::milliseconds longest;  // without a sign
    /// Called some ten times a second once a sign is a second late.
    std::function<bool()> is_hopeless = nullptr;
  };
  /// `action` is called once.
  StallWatch(Limits limits, std::function<void()> action);

  /// A sign of progress, from which on it counts. Costs one addition.
  void sign() { signs_.fetch_add(1, std::memory_order_relaxed); }
  /// Nothing is under way: it counts no more.
  void rest() { signs_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> signs_ = 0;  // 0: at rest
  base::Timer timer_;                     // uses the rest
};

/// How long a rank may look for agreement after a SIGTERM. It may mean that a peer is dead and the launcher
/// is clearing up: nobody is left to agree with, and the launcher's SIGKILL comes 1.9 s later (Open MPI 4).
double grace_seconds(const Job& job, const Environment& environment);

/// Calls `give_up` when a SIGTERM is older than that and nobody has called agreed().
class Grace {
 public:
  Grace(double seconds, std::function<void()> give_up);

  void agreed() { agreed_ = true; }

 private:
  std::atomic<bool> agreed_{false};
  base::Timer timer_;  // uses the rest
};

}  // namespace lockstep::launch
