#pragma once
// A linear layer, and relu behind it, as one node of autograd's graph: to the bits of libtorch's three.

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Equal to at::relu(at::linear(x, weight, bias)) in every bit of its result and its gradients, and the
/// gradients come in the same order. A node costs more than the products of a small layer. What it does not
/// know (another device or element type, more dimensions, autocast) goes through libtorch's own functions.
at::Tensor linear_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// The same without the relu.
at::Tensor linear_alone(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace lockstep
