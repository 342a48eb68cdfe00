#pragma once
// The course's MNIST network: two convolutions, two linear layers, 421,642 parameters with Python's names.

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "lockstep/models/chain.h"
#include "lockstep/models/net.h"

namespace lockstep {

/// Convolutions conv1 and conv2 (3 x 3) with pooling, then linear layers fc1 and fc2.
class SimpleCNN : public Net, public Chain {
 public:
  /// Creates the layers in Python's order, so that the same seed gives the same parameters.
  SimpleCNN();
  /// Maps [n, 1, 28, 28] to [n, 10].
  torch::Tensor forward(const torch::Tensor& input) override;
  std::vector<Part> chain() override;
  bool use_own_kernels() override { return own_kernels_ = true; }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_;
  bool own_kernels_ = false;
};

}  // namespace lockstep
