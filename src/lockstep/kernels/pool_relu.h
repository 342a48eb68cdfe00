#pragma once
// max_pool2d(relu(x), 2) in one pass forward and one backward, to the same bits.

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Equal to at::max_pool2d(at::relu(x), 2) in every bit of its result and its gradients, ties, NaN and -0
/// included. For backward it keeps one byte for each output, where the two keep x and an index of eight
/// bytes. Other devices, element types and memory formats use the two functions.
at::Tensor pool_relu(const at::Tensor& x);

}  // namespace lockstep
