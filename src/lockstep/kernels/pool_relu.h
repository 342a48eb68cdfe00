#pragma once
// max_pool2d(relu(x), 2) in one pass forward and one backward, with the same results, bit for bit.

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Returns at::max_pool2d(at::relu(x), 2); result and gradients are the same, bit for bit, with ties, NaN and
/// -0. Stores one byte per output for backward; libtorch's functions store x and an 8-byte index per output.
/// Uses them for other devices, element types and memory formats.
at::Tensor pool_relu(const at::Tensor& x);

}  // namespace lockstep
