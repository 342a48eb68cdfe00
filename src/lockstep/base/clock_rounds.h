#pragma once
// How far two clocks are apart, from exchanges that nobody leaves before everybody has come.

#include <cstdint>
#include <vector>

namespace lockstep::base {

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
