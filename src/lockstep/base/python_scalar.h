#pragma once
// Scalars as PyTorch's Python binding passes them.

#include <ATen/ScalarOps.h>

namespace lockstep::base {

/// For tensor.mul_(): C++ rounds a double to the tensor's bf16 or fp16 first, Python does not.
inline at::Tensor python_scalar(double value) {
  return at::native::wrapped_scalar_tensor(value);
}

}  // namespace lockstep::base
