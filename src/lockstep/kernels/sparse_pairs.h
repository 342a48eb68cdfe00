#pragma once
// sparse_input_gradient() by products of bf16.

#include "lockstep/kernels/conv_shape.h"
#include "lockstep/kernels/sparse_conv_loops.h"

namespace lockstep::kernels {

/// Channels in multiples of 32, and a number of 16 bits for each that goes out.
bool fits_pairs(const ConvShape& shape);

/// For what fits_pairs(), where multiplies_bf16().
void sparse_input_gradient_of_pairs(const ConvShape& shape, const PooledGradient& gradient,
                                    const float* weight, float* x);

}  // namespace lockstep::kernels
