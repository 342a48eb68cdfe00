#pragma once
// A device's default generator: the CPU's state is interchangeable with torch.get_rng_state(), a GPU's with
// torch.cuda.get_rng_state().

#include <ATen/core/Tensor.h>

namespace lockstep {

/// A ByteTensor on the CPU: 5,056 bytes of the CPU's generator.
at::Tensor rng_state(at::Device device = at::kCPU);
/// InputError where the tensor is no such state.
void set_rng_state(const at::Tensor& state, at::Device device = at::kCPU);

}  // namespace lockstep
