#pragma once
// Time in which this process ran, deadlines, and the offset between two clocks.

#include <chrono>
#include <cstdint>
#include <vector>

namespace lockstep::base {

/// Time since construction without suspensions: a scheduler may stop a job (SIGSTOP) for hours, and a timeout
/// must not count that. For a thread that calls passed() often, a longer gap counts as half a second.
class AwakeTime {
 public:
  using Clock = std::chrono::steady_clock;

  Clock::duration passed() { return passed_at(Clock::now()); }
  Clock::duration passed_at(Clock::time_point now);

 private:
  Clock::time_point looked_ = Clock::now();
  Clock::duration passed_{};
};

/// A moment on the steady clock. It also passes while this process is suspended.
class Deadline {
 public:
  explicit Deadline(std::chrono::nanoseconds from_now) : end_(AwakeTime::Clock::now() + from_now) {}

  bool passed() const { return AwakeTime::Clock::now() >= end_; }
  /// Rounded up; zero once it has passed.
  std::chrono::milliseconds left() const;

 private:
  AwakeTime::Clock::time_point end_;
};

/// When one rank entered and left a barrier, in nanoseconds of its clock.
struct ClockRound {
  int64_t before = 0, after = 0;
};

/// A rank's clock compared with rank 0's, in nanoseconds.
struct ClockReading {
  int64_t when = 0;  ///< on its own clock
  double ahead = 0;  ///< of rank 0's
  double error = 0;  ///< the largest possible error of `ahead`
};

/// From the same barriers, in order, on rank 0 and on the rank; at least one.
ClockReading compare_rounds(const std::vector<ClockRound>& first, const std::vector<ClockRound>& rank);

}  // namespace lockstep::base
