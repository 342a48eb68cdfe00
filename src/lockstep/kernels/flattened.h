#pragma once
// Images as rows of numbers, which a linear layer takes.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/kernels/level.h"

namespace lockstep {

/// x.flatten(1), channel by channel. Within an autocast to bf16, images of floats on a CPU that lie channels
/// last are rounded in the same pass: to the bits that autocast would give a linear layer. What it does not
/// know is flattened by libtorch.
at::Tensor flattened(const at::Tensor& x);

}  // namespace lockstep

namespace lockstep::kernels {

/// Its loop: [images][places][channels] to bf16 [images][channels][places], rounded to the nearest, of two to
/// the even one.
void flatten_images(const float* x, int64_t images, int64_t places, int64_t channels, uint16_t* to,
                    SimdLevel level);

}  // namespace lockstep::kernels
