#pragma once
// A convolution with the pool and relu behind it, as the networks for images have them.

#include <torch/nn/modules/conv.h>

#include "lockstep/kernels/fast_kernels.h"
#include "lockstep/kernels/pool_relu.h"

namespace lockstep {

/// Of 3 x 3, which leaves images as large as they are.
inline torch::nn::Conv2dOptions same_size(int64_t in, int64_t out) {
  return torch::nn::Conv2dOptions(in, out, 3).padding(1);
}

/// A convolution, relu and a pool of 2 x 2: with the fast kernels, or to libtorch's bits where `fast` is
/// null.
inline at::Tensor pooled(torch::nn::Conv2d& conv, const at::Tensor& x, const FastKernels* fast) {
  return fast ? fast->conv_pool_relu(x, conv->weight, conv->bias) : pool_relu(conv->forward(x));
}

}  // namespace lockstep
