#pragma once
// A linear layer with relu as one node of autograd's graph, to the bits of libtorch's three nodes.

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Equal to at::relu(at::linear(x, weight, bias)) in every bit of its result and its gradients, with the
/// gradients in the same order. For a small layer a node costs more than the products. Other devices, element
/// types, dimensions and autocast use libtorch's own functions.
at::Tensor linear_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// The same without the relu.
at::Tensor linear_alone(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace lockstep
