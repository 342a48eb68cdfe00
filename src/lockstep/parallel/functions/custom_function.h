#pragma once
// What our own autograd functions share.

#include <torch/csrc/autograd/custom_function.h>

#include <optional>

namespace lockstep::parallel {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

/// A custom function takes no undefined tensor.
inline OptionalTensor if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

}  // namespace lockstep::parallel
