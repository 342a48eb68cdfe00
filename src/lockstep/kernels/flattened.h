#pragma once
// Images as rows of numbers, which a linear layer takes.

#include <ATen/core/Tensor.h>

namespace lockstep {

/// x.flatten(1), channel by channel. Within an autocast to bf16, images of floats on a CPU that lie channels
/// last are rounded in the same pass: to the bits that autocast would give a linear layer. What it does not
/// know is flattened by libtorch.
at::Tensor flattened(const at::Tensor& x);

}  // namespace lockstep
