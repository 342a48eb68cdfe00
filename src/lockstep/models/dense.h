#pragma once
// A model that is linear layers with ReLU between them: what train.kernels: fast trains without a graph.

#include <torch/nn/modules/linear.h>

#include <memory>
#include <vector>

#include "lockstep/kernels/linear_relu.h"
#include "lockstep/models/net.h"

namespace lockstep {

/// In the order of the forward pass.
using DenseLayers = std::vector<std::shared_ptr<torch::nn::LinearImpl>>;

/// A Net that says so: struct Mine : lockstep::Net, lockstep::Dense { ... };
class Dense {
 public:
  virtual ~Dense() = default;
  /// forward() is these with ReLU between them, over a batch with its samples flattened; empty where it is
  /// more than that.
  virtual DenseLayers dense_layers() = 0;
};

/// relu(layer(x)), and layer(x), in one node of the graph each, to the same bits.
inline at::Tensor with_relu(const torch::nn::LinearImpl& layer, const at::Tensor& x) {
  return linear_relu(x, layer.weight, layer.bias);
}
inline at::Tensor alone(const torch::nn::LinearImpl& layer, const at::Tensor& x) {
  return linear_alone(x, layer.weight, layer.bias);
}

/// Is this net a Dense whose layers hold all its parameters, each of them once? Then every one gets a
/// gradient in every step.
bool is_all_dense(Net& net);

}  // namespace lockstep
