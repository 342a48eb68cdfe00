#pragma once
// Flattens images into rows for a linear layer.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/kernels/level.h"

namespace lockstep {

/// x.flatten(1), channel by channel. With autocast to bf16 it also rounds float images in channels_last on a
/// CPU in the same pass, to the bits that autocast would give. libtorch flattens everything else.
at::Tensor flattened(const at::Tensor& x);

}  // namespace lockstep

namespace lockstep::kernels {

/// Its loop: [images][places][channels] to bf16 [images][channels][places], rounded to the nearest even.
void flatten_images(const float* x, int64_t images, int64_t places, int64_t channels, uint16_t* to,
                    SimdLevel level);

}  // namespace lockstep::kernels
