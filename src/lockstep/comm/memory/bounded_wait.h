#pragma once
// How long and how to wait for another rank inside a collective: spin, then sleep or yield, and look up now
// and then.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {

// A short wait for another core, before a longer one that gives this core up.

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// How long to spin, from how long it took before: where other work has the cores, another rank is away for
/// milliseconds, and a spin only takes the core that it waits for.
class SpinLength {
 public:
  std::chrono::nanoseconds longest() const { return longest_; }
  void waited(std::chrono::nanoseconds time) {
    longest_ = time <= kLongest ? kLongest : std::max(kShortest, longest_ / 2);
  }

 private:
  // Above what ranks with a core each are apart in a step of a small model; waking takes a third of it.
  static constexpr std::chrono::nanoseconds kLongest{150'000}, kShortest{2'000};
  std::chrono::nanoseconds longest_ = kLongest;
};

/// With a core for each rank the other is usually microseconds away; where ranks outnumber the cores it needs
/// this one.
class Spin {
 public:
  Spin(bool crowded, std::chrono::nanoseconds longest) : crowded_(crowded), longest_(longest) {}
  /// Pauses, or says that it has been long enough.
  bool again() {
    if (over_) return false;
    pause_briefly();
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

  static constexpr int kCrowdedTurns = 50;

 private:
  static constexpr int kTurnsPerClock = 64;

  bool crowded_;
  std::chrono::nanoseconds longest_;
  bool over_ = false;
  int turns_ = 0;
  std::chrono::steady_clock::time_point end_;
};

/// Thrown out of a collective that cannot end; the backend turns it into an error that names the ranks.
struct WaitExpired {
  bool timed_out = false;
  std::string cause = "";  // the backend's own words
};

class BoundedWait {
 public:
  BoundedWait(const RollCall& roll, uint64_t collective, std::chrono::milliseconds timeout, bool crowded);
  /// What is waited in, as the roll counts it.
  uint64_t collective() const { return collective_; }

  /// One turn of a waiting loop for `rank` (-1: nobody in particular). Throws WaitExpired when this process
  /// has been awake for the timeout, or when that rank has ended.
  void turn(int rank = -1);
  /// The same where the one awaited can wake this one: sleep(longest) takes the place of yielding. A core
  /// that others want is given up soon, and is back soon, which yielding does not bring about.
  template <class Sleep>
  void turn(int rank, const Sleep& sleep) {
    if (spin_.again()) return;
    sleep(kLongestSleep);
    look_up(rank);
  }
  /// Before each wait: spin again, so long where the one awaited can wake this one.
  void restart(std::chrono::nanoseconds longest_spin = SpinLength().longest()) {
    turns_ = 0;
    spin_ = Spin(crowded_, longest_spin);
  }

 private:
  static constexpr std::chrono::milliseconds kLongestSleep{20};

  void look_up(int rank);

  const RollCall& roll_;
  uint64_t collective_;
  std::chrono::milliseconds timeout_;
  base::AwakeTime awake_;
  std::chrono::steady_clock::time_point next_look_;
  bool crowded_;
  int turns_ = 0;
  Spin spin_;
};

}  // namespace lockstep::comm
