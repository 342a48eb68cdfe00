#pragma once
// SGD over plain memory in one pass, to the bits of ATen's operations one after the other.

#include <cstdint>

#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

/// torch.optim.SGD's options, rounded to float as its operations do.
struct SgdFactors {
  float lr = 0, momentum = 0, dampening_left = 1, weight_decay = 0;  // dampening_left: 1 - dampening
  bool nesterov = false;
};

/// True if one pass has the right bits and is faster. ATen's rounding is known only on x86, and ATen is
/// faster with several threads.
bool pays_sgd(int64_t count);

/// One step of `count` parameters on this thread; `buffer` is the momentum buffer or nullptr.
void take_sgd_step(const SgdFactors& sgd, float* parameters, const float* gradients, float* buffer,
                   int64_t count, SimdLevel level);

}  // namespace lockstep::kernels
