#pragma once
// How far the ranks' clocks are apart, so that what they did can stand on one time line.

#include <cstdint>
#include <vector>

#include "lockstep/base/clock_rounds.h"
#include "lockstep/parallel/team.h"
#include "trainer/observe/tracer.h"

namespace lockstep::train {

using base::ClockReading;

/// All ranks', in rank order. Collective.
std::vector<ClockReading> compare_clocks(const Team& team, const Tracer& tracer);

/// A rank's own moment by rank 0's clock; between two readings the clock is taken to drift evenly.
double aligned(int64_t moment, const ClockReading& first, const ClockReading& last);

}  // namespace lockstep::train
