#pragma once
// The state of a device's default generator: the same bytes as torch.get_rng_state() for the CPU, and as
// torch.cuda.get_rng_state() for a GPU.

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Returns the state as a ByteTensor on the CPU, 5,056 bytes for the CPU's generator.
at::Tensor rng_state(at::Device device = at::kCPU);
/// Sets the state. Throws InputError if the tensor is not a state of this device's generator.
void set_rng_state(const at::Tensor& state, at::Device device = at::kCPU);

}  // namespace lockstep
