#pragma once
// A linear layer with relu as one autograd node; same results as libtorch's three nodes, bit for bit.

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Returns at::relu(at::linear(x, weight, bias)); the result, the gradients and their order are the same, bit
/// for bit. For a small layer, a node takes longer than the products. Uses libtorch's functions for other
/// devices, element types, dimensions and autocast.
at::Tensor linear_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// The same without the relu.
at::Tensor linear_alone(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace lockstep
