#pragma once
// The convolution of images of one channel, with bias, pool and relu in registers, and its gradients.

#include "lockstep/kernels/conv_shape.h"
#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

/// Channels out are a multiple of this.
constexpr int64_t kFirstStep = 16;

/// weight [out][taps]; output and winner [images][windows][out].
void first_conv_forward(const ConvShape& shape, const float* x, const float* weight, const float* bias,
                        float* output, uint8_t* winner, SimdLevel level);

/// The weights' gradient [out][taps] and the bias's; the same at any number of threads.
void first_conv_backward(const ConvShape& shape, const float* x, const float* gradient, const uint8_t* winner,
                         float* weight, float* bias, SimdLevel level);

}  // namespace lockstep::kernels
