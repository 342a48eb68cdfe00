#pragma once
// How a rank waits for another one inside a collective: it spins, then sleeps or yields, and checks regularly
// that the other rank is alive.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/comm/watch/peer_monitor.h"

namespace lockstep::comm {

/// How long to spin, adapted to earlier waits: if other processes use the cores, another rank may not run for
/// milliseconds, and spinning would only take the core that it needs.
class SpinLength {
 public:
  std::chrono::nanoseconds longest() const { return longest_; }
  void waited(std::chrono::nanoseconds time) {
    longest_ = time <= kLongest ? kLongest : std::max(kShortest, longest_ / 2);
  }

 private:
  // Ranks with a core each arrive closer together in a step of a small model. A wake-up takes a third of it.
  static constexpr std::chrono::nanoseconds kLongest{150'000}, kShortest{2'000};
  std::chrono::nanoseconds longest_ = kLongest;
};

/// Only a few turns if there are more ranks than cores (`crowded`), because the other rank needs this core.
class Spin {
 public:
  Spin(bool crowded, std::chrono::nanoseconds longest) : crowded_(crowded), longest_(longest) {}
  /// Pauses, or returns false when it has been long enough.
  bool again() {
    if (over_) return false;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
    ++turns_;
    if (crowded_) {
      over_ = turns_ > kCrowdedTurns;
    } else if (turns_ % kTurnsPerClock == 0) {
      const auto now = std::chrono::steady_clock::now();
      if (turns_ == kTurnsPerClock) end_ = now + longest_;
      over_ = now >= end_;
    }
    return true;
  }

 private:
  static constexpr int kCrowdedTurns = 50, kTurnsPerClock = 64;

  bool crowded_;
  std::chrono::nanoseconds longest_;
  bool over_ = false;
  int turns_ = 0;
  std::chrono::steady_clock::time_point end_;
};

/// Thrown by a collective that cannot end; the backend turns it into an error that names the ranks.
struct WaitExpired {
  bool timed_out = false;
  std::string cause = "";  // the backend's own words
};

class BoundedWait {
 public:
  BoundedWait(const PeerMonitor& monitor, uint64_t collective, std::chrono::milliseconds timeout,
              bool crowded)
      : monitor_(monitor),
        collective_(collective),
        timeout_(timeout),
        crowded_(crowded),
        spin_(crowded, SpinLength().longest()) {}
  /// The number of the collective that waits.
  uint64_t collective() const { return collective_; }

  /// One turn of a loop that waits for `rank` (-1: for no particular one). Throws WaitExpired when this
  /// process has been awake for the timeout, or when that rank has ended. After the spin it calls
  /// sleep(longest), which may return at once.
  template <class Sleep>
  void turn(int rank, const Sleep& sleep) {
    if (spin_.again()) return;
    sleep(kLongestSleep);
    look_up(rank);
  }
  /// The same, but yields: nothing can wake this process.
  void turn(int rank = -1);
  /// Call it before each loop, so that it spins again.
  void restart(std::chrono::nanoseconds longest_spin = SpinLength().longest()) {
    spin_ = Spin(crowded_, longest_spin);
  }

 private:
  static constexpr std::chrono::milliseconds kLongestSleep{20};

  void look_up(int rank);

  const PeerMonitor& monitor_;
  uint64_t collective_;
  std::chrono::milliseconds timeout_;
  base::AwakeTime awake_;
  std::optional<std::chrono::steady_clock::time_point> next_look_;
  bool crowded_;
  Spin spin_;
};

}  // namespace lockstep::comm
