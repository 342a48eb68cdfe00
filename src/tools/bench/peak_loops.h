#pragma once
// The loops of measure_peak(), compiled for each level of processors.

#include <cstdint>

#include "lockstep/kernels/level.h"

namespace lockstep::bench {

/// `rounds` times as many multiplications and additions as the processor overlaps; returns their number.
double multiply_and_add(int64_t rounds, kernels::SimdLevel level);

/// a = b + 3 c
void triad(float* a, const float* b, const float* c, int64_t count, kernels::SimdLevel level);

/// Numbers in a vector of this level.
int lanes_of(kernels::SimdLevel level);

}  // namespace lockstep::bench
