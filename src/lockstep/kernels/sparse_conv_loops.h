#pragma once
// The gradients of a convolution of 3 x 3 behind a pool and relu: of four sums one has a gradient or none
// has, so one product in four is left, or fewer.

#include "lockstep/kernels/bf16.h"
#include "lockstep/kernels/conv_shape.h"
#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

/// What comes back to the pool's windows.
struct PooledGradient {
  const float* values;    // [images][out][windows]
  const uint8_t* winner;  // [images][windows][out]
};

/// The weights' gradient [out][taps][in] and the bias's; the same at any number of threads.
void sparse_weight_gradient(const ConvShape& shape, const float* x, const PooledGradient& gradient,
                            float* weight, float* bias, SimdLevel level,
                            Products products = Products::floats);

/// The input's gradient, from weight [out][taps][in].
void sparse_input_gradient(const ConvShape& shape, const PooledGradient& gradient, const float* weight,
                           float* x, SimdLevel level, Products products = Products::floats);

}  // namespace lockstep::kernels
