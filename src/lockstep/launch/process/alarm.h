#pragma once
// Timeouts that act from the process's timer thread. They do not count time in which it was suspended.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/base/timer.h"
#include "lockstep/launch/identify.h"

namespace lockstep::launch {

/// Calls `action` after `delay`, unless it is destroyed before. For calls that cannot be interrupted.
class Alarm {
 public:
  /// A delay of zero or less never acts.
  Alarm(std::chrono::milliseconds delay, std::function<void()> action);

 private:
  std::unique_ptr<base::Timer> timer_;
};

/// Acts if work that reports progress has reported none for too long, even if the host thread is blocked.
class StallWatch {
 public:
  struct Limits {
    std::chrono::milliseconds longest;  // without progress
    /// Called about ten times a second after one second without progress.
    std::function<bool()> cannot_progress = nullptr;
  };
  /// Calls `action` once.
  StallWatch(Limits limits, std::function<void()> action);

  /// Reports progress, and starts to count. Costs one addition.
  void sign() { signs_.fetch_add(1, std::memory_order_relaxed); }
  /// Stops counting until the next sign().
  void rest() { signs_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> signs_ = 0;  // 0: at rest
  base::Timer timer_;                     // uses the rest
};

/// How long a rank may wait for agreement after a SIGTERM. If the launcher sent it because a peer died, no
/// agreement will come, and the launcher sends SIGKILL 1.9 s later (Open MPI 4).
double grace_seconds(const Job& job, const Environment& environment);

/// Calls `give_up` when a SIGTERM is older than `seconds`, unless agreed() was called.
class Grace {
 public:
  Grace(double seconds, std::function<void()> give_up);

  void agreed() { agreed_ = true; }

 private:
  std::atomic<bool> agreed_{false};
  base::Timer timer_;  // uses the rest
};

}  // namespace lockstep::launch
