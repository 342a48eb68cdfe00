#pragma once
// A short wait for another core, before a longer one that gives this core up.

#include <algorithm>
#include <chrono>

namespace lockstep::comm {

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

}  // namespace lockstep::comm
