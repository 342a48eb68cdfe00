#pragma once
// A model of linear layers with ReLU between them, which train.kernels: fast trains without autograd.

#include <torch/nn/modules/linear.h>

#include <memory>
#include <vector>

#include "lockstep/kernels/linear_relu.h"
#include "lockstep/models/net.h"

namespace lockstep {

/// Linear layers in the order of the forward pass.
using DenseLayers = std::vector<std::shared_ptr<torch::nn::LinearImpl>>;

/// Derive from it to describe a Net: struct Mine : lockstep::Net, lockstep::Dense { ... };
class Dense {
 public:
  virtual ~Dense() = default;
  /// The layers that forward() applies, with ReLU between them, to the batch with its samples flattened.
  /// Return an empty list if forward() does anything else.
  virtual DenseLayers dense_layers() = 0;
};

/// with_relu() is relu(layer(x)), alone() is layer(x): one autograd node, the same result bit for bit.
inline at::Tensor with_relu(const torch::nn::LinearImpl& layer, const at::Tensor& x) {
  return linear_relu(x, layer.weight, layer.bias);
}
inline at::Tensor alone(const torch::nn::LinearImpl& layer, const at::Tensor& x) {
  return linear_alone(x, layer.weight, layer.bias);
}

/// Whether the net is a Dense whose layers contain each of its parameters exactly once. If so, every
/// parameter gets a gradient in every step.
bool is_all_dense(Net& net);

}  // namespace lockstep
