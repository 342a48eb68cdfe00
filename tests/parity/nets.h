#pragma once
// The peers' models: twins of those in peer.py, made in the same order for the same parameters.

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::parity {

/// `pick` says which way a net with branches takes.
struct ParityNet : torch::nn::Module {
  virtual std::vector<at::Tensor> forward(const at::Tensor& input, int64_t pick) = 0;
  virtual std::vector<int64_t> input_shape() const { return {8}; }
  virtual bool takes_indices() const { return false; }
  virtual int64_t classes() const { return 2; }
};

std::shared_ptr<ParityNet> make_net(const std::string& model);

}  // namespace lockstep::parity
