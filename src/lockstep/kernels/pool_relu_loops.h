#pragma once
// The loops of pool_relu, at the level that the caller asks for.

#include <ATen/core/Tensor.h>

#include <array>

#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

/// Who wins where relu stopped all four.
constexpr uint8_t kNobody = 4;

struct Pooled {
  at::Tensor output;
  at::Tensor winner;  // of each window's four elements, in the order of reading
};

struct PooledImages {
  std::array<int64_t, 4> sizes;  // of x
  bool channels_last;
};

PooledImages images_of(const at::Tensor& x);
Pooled pool_relu_forward(const at::Tensor& x, const PooledImages& images, Level level);
at::Tensor pool_relu_backward(const at::Tensor& gradient, const at::Tensor& winner,
                              const PooledImages& images, Level level);

}  // namespace lockstep::kernels
