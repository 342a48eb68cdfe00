#pragma once
// One layout for a parameter and its gradient, to the stride: what libtorch's fused optimisers insist on.

#include <ATen/core/Tensor.h>

namespace lockstep {

/// The gradient with the parameter's strides: itself where only dimensions of one element differ, else a
/// copy.
at::Tensor laid_out_as(const at::Tensor& param, const at::Tensor& grad);

}  // namespace lockstep
