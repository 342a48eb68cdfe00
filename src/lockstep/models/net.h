#pragma once
// The base of every model the program trains: one tensor in, one tensor out.

#include <torch/nn/module.h>

namespace lockstep {

/// A model of one input and one output: what every task trains.
struct Net : torch::nn::Module {
  using torch::nn::Module::Module;
  /// A batch in, its outputs out.
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;
  /// From now on computes on CPUs with kernels of our own: quicker, and sums in another order than
  /// libtorch's. False where the model has none.
  virtual bool use_own_kernels() { return false; }
  /// What the next forward's input holds, which lies on a device: what a model decides by its numbers it
  /// decides here, without a wait for the device.
  virtual void prefetch(const torch::Tensor& input, const torch::Tensor& on_host) {
    static_cast<void>(input), static_cast<void>(on_host);
  }
};

}  // namespace lockstep
