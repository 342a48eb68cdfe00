#pragma once
// A convolution with the pool and relu behind it, as the networks for images have them.

#include <torch/nn/modules/conv.h>

#include "lockstep/kernels/conv_pool_relu.h"
#include "lockstep/kernels/pool_relu.h"

namespace lockstep {

/// Of 3 x 3, which leaves images as large as they are.
inline torch::nn::Conv2dOptions same_size(int64_t in, int64_t out) {
  return torch::nn::Conv2dOptions(in, out, 3).padding(1);
}

/// relu and a pool of 2 x 2 behind it; with kernels of our own, or to libtorch's bits.
inline at::Tensor pooled(torch::nn::Conv2d& conv, const at::Tensor& x, bool own_kernels) {
  return own_kernels ? conv_pool_relu(x, conv->weight, conv->bias) : pool_relu(conv->forward(x));
}

}  // namespace lockstep
