#pragma once
// The base class of every model that lockstep trains: one tensor in, one tensor out.

#include <torch/nn/module.h>

namespace lockstep {

/// A model with one input and one output.
struct Net : torch::nn::Module {
  using torch::nn::Module::Module;
  /// Takes a batch of inputs and returns its outputs.
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;
  /// Switches to lockstep's own CPU kernels, which are faster but sum in a different order. Returns false if
  /// the model has none.
  virtual bool use_own_kernels() { return false; }
  /// Called before forward() with the input and its copy on the host. A model that branches on the values
  /// does so here, to avoid a synchronization with the device.
  virtual void prefetch(const torch::Tensor& input, const torch::Tensor& on_host) {
    static_cast<void>(input), static_cast<void>(on_host);
  }
};

}  // namespace lockstep
