#pragma once
// The CPU generator's state, interchangeable with torch.get_rng_state().

#include <ATen/core/Tensor.h>

namespace lockstep {

/// 5,056 bytes as a ByteTensor.
at::Tensor rng_state();
/// InputError where the tensor is no such state.
void set_rng_state(const at::Tensor& state);

}  // namespace lockstep
