#pragma once
// The loop of flattened(), at the level that the caller asks for.

#include <cstdint>

#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

/// [images][places][channels] to bf16 [images][channels][places]: to the nearest, of two the even one.
void flatten_images(const float* x, int64_t images, int64_t places, int64_t channels, uint16_t* to,
                    SimdLevel level);

}  // namespace lockstep::kernels
