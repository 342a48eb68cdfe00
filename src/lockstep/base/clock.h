#pragma once
// Time in which this process ran. A scheduler may suspend all processes of a job (SIGSTOP) and let them go on
// hours later: whoever waits for another process is not to count that.

#include <chrono>
#include <cstdint>
#include <vector>

namespace lockstep::base {

/// Counts from its making, for one thread that looks often: a longer gap between two looks than half a second
/// is a suspension, and counts for that much.
class AwakeTime {
 public:
  using Clock = std::chrono::steady_clock;

  Clock::duration passed() { return passed_at(Clock::now()); }
  Clock::duration passed_at(Clock::time_point now);

 private:
  Clock::time_point looked_ = Clock::now();
  Clock::duration passed_{};
};

// How far two clocks are apart, from exchanges that nobody leaves before everybody has come.

/// What one rank saw of such an exchange, in nanoseconds of its own clock.
struct ClockRound {
  int64_t before = 0, after = 0;
};

/// A rank's clock, once compared with rank 0's, in nanoseconds.
struct ClockReading {
  int64_t when = 0;  ///< by its own clock
  double ahead = 0;  ///< of rank 0's
  double error = 0;  ///< at most so far from the truth
};

/// The same exchanges, in order, as rank 0 and as the rank saw them; at least one.
ClockReading compare_rounds(const std::vector<ClockRound>& first, const std::vector<ClockRound>& rank);

}  // namespace lockstep::base
