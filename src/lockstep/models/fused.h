#pragma once
// A torch::nn::Sequential whose neighbours are computed in one, to the same bits.

#include <torch/nn/modules/container/sequential.h>

namespace lockstep {

/// What layers->forward(x) returns, with its gradients, in every bit. ReLU with a max pool of 2 x 2 behind it
/// (pool_relu), Linear with ReLU behind it, and Linear alone (linear_relu) are computed as one where these
/// kernels serve; anything else is called as it stands. The layers, their names and parameters stay what they
/// are: use it in the forward() of a module that holds them.
at::Tensor fused_forward(torch::nn::Sequential& layers, const at::Tensor& x);

}  // namespace lockstep
