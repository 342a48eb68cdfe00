#pragma once
// The loops of pool_relu, at the level that the caller asks for.

#include <ATen/core/Tensor.h>

#include <array>

#include "lockstep/kernels/level.h"
#include "lockstep/kernels/vector.h"

namespace lockstep::kernels {

/// The winner if relu set all four to zero.
constexpr uint8_t kNoWinner = 4;

/// Of each window, in the order of reading.
template <int lanes>
using Four = std::array<Floats<lanes>, 4>;

struct PoolOutput {
  at::Tensor output;
  at::Tensor winner;  // of each window's four elements, in the order of reading
};

struct PooledImages {
  std::array<int64_t, 4> sizes;  // of x
  bool channels_last;
};

PooledImages images_of(const at::Tensor& x);
PoolOutput pool_relu_forward(const at::Tensor& x, const PooledImages& images, SimdLevel level);
at::Tensor pool_relu_backward(const at::Tensor& gradient, const at::Tensor& winner,
                              const PooledImages& images, SimdLevel level);
/// The same as tensor operations, which have gradients of their own.
at::Tensor spread_with_graph(const at::Tensor& gradient, const at::Tensor& winner,
                             const PooledImages& images);

}  // namespace lockstep::kernels
