#pragma once
// The convolution of 3 x 3 by Winograd's F(2 x 2, 3 x 3), with bias, pool and relu on what it makes: a tile
// is a window of the pool. Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.

#include "lockstep/kernels/bf16.h"
#include "lockstep/kernels/conv_shape.h"
#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

/// Channels are multiples of these.
constexpr int64_t kInStep = 16, kOutStep = 32;

/// weight [out][taps][in]; output and winner [images][windows][out].
void winograd_forward(const ConvShape& shape, const float* x, const float* weight, const float* bias,
                      float* output, uint8_t* winner, SimdLevel level, Products products = Products::floats);

}  // namespace lockstep::kernels
