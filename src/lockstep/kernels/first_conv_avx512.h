#pragma once
// The weights' gradient of a first convolution with AVX-512: the 4 x 4 pixels that a window sees are one
// register.

#include <cstdint>

#include "lockstep/kernels/conv_shape.h"

namespace lockstep::kernels {

/// Adds what one image gives to nine taps and the bias, [10][out], of 16 or 32 channels; gradient and winner
/// [windows][out], and they and `to` begin at the first of these channels.
void add_first_gradient_avx512(const ConvShape& shape, const float* padded, const float* gradient,
                               const uint8_t* winner, int channels, float* to);

}  // namespace lockstep::kernels
