#pragma once
// How far the ranks' clocks are apart, so that what they did can stand on one time line.

#include <cstdint>
#include <vector>

#include "lockstep/parallel/team.h"
#include "lockstep/train/tracer.h"

namespace lockstep::train {

/// A rank's clock, once compared with rank 0's, in nanoseconds.
struct ClockReading {
  int64_t when = 0;  ///< by its own clock
  double ahead = 0;  ///< of rank 0's
  double error = 0;  ///< at most so far from the truth
};

/// All ranks', in rank order. Collective.
std::vector<ClockReading> compare_clocks(const Team& team, const Tracer& tracer);

/// A rank's own moment by rank 0's clock; between two readings the clock is taken to drift evenly.
double aligned(int64_t moment, const ClockReading& first, const ClockReading& last);

}  // namespace lockstep::train
