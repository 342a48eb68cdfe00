#pragma once
// A short wait for another core, before a longer one that gives this core up.

#include <chrono>

namespace lockstep::comm {

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// With a core for each rank the other is usually microseconds away; where ranks outnumber the cores it needs
/// this one.
class Spin {
 public:
  explicit Spin(bool crowded) : crowded_(crowded) {}
  /// Pauses, or says that it has been long enough.
  bool again() {
    if (over_) return false;
    pause_briefly();
    ++turns_;
    if (crowded_) {
      over_ = turns_ > kCrowdedTurns;
    } else if (turns_ % kTurnsPerClock == 0) {
      const auto now = std::chrono::steady_clock::now();
      if (turns_ == kTurnsPerClock) end_ = now + kLongest;
      over_ = now >= end_;
    }
    return true;
  }

 private:
  // Above what ranks with a core each are apart in a step of a small model; waking takes a third of it.
  static constexpr auto kLongest = std::chrono::microseconds(150);
  static constexpr int kCrowdedTurns = 50;
  static constexpr int kTurnsPerClock = 64;

  bool crowded_;
  bool over_ = false;
  int turns_ = 0;
  std::chrono::steady_clock::time_point end_;
};

}  // namespace lockstep::comm
