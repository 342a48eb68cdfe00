#pragma once
// Linear layers with ReLU between them: the model of the table tasks.

#include <torch/nn/modules/container/sequential.h>

#include <vector>

#include "lockstep/models/chain.h"
#include "lockstep/models/dense.h"
#include "lockstep/models/layers.h"
#include "lockstep/models/net.h"

namespace lockstep {

/// Named like Python's nn.Sequential(Linear, ReLU, Linear, ...) in a member `layers`: layers.0, layers.2, ...
class Mlp : public Net, public Chain, public Dense {
 public:
  /// Inputs of more than one dimension are flattened to `inputs` numbers a sample. Of layers that ranks
  /// share, each second one sums what the one before it has shared out; a last one that is left over is
  /// whole.
  Mlp(int64_t inputs, const std::vector<int64_t>& hidden, int64_t classes, const Layers& layers = {});
  torch::Tensor forward(const torch::Tensor& input) override;
  std::vector<Part> chain() override;
  DenseLayers dense_layers() override;

 private:
  torch::nn::Sequential layers_;
};

}  // namespace lockstep
