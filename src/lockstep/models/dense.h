#pragma once
// A model that is linear layers with ReLU between them: what train.kernels: fast trains without a graph.

#include <torch/nn/modules/linear.h>

#include <memory>
#include <vector>

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

}  // namespace lockstep
