#pragma once
// SGD over plain memory in one pass, to the bits of ATen's operations one after the other.

#include <cstdint>

#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

/// torch.optim.SGD's numbers, as its operations on floats round them.
struct SgdFactors {
  float lr = 0, momentum = 0, dampening_left = 1, weight_decay = 0;  // dampening_left: 1 - dampening
  bool nesterov = false;
};

/// Is one pass right and quicker? ATen's roundings are known on x86 alone, and several threads of ATen's are
/// quicker.
bool pays_sgd(int64_t count);

/// One step of `count` parameters, on this thread; `buffer` is momentum's, nullptr where there is none.
void take_sgd_step(const SgdFactors& sgd, float* parameters, const float* gradients, float* buffer,
                   int64_t count, SimdLevel level);

}  // namespace lockstep::kernels
