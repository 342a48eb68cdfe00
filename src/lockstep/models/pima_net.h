#pragma once
// The Pima network: 8 numbers in, 64 and 32 units, a two-class head; and a variant with a branch that is
// never used.

#include <torch/nn/modules/linear.h>

#include <vector>

#include "lockstep/models/chain.h"
#include "lockstep/models/dense.h"
#include "lockstep/models/net.h"

namespace lockstep {

/// Linear layers fc1, fc2 and head with ReLU between them.
class PimaNet : public Net, public Chain, public Dense {
 public:
  PimaNet();
  /// [n, 8] to [n, 2].
  torch::Tensor forward(const torch::Tensor& input) override;
  std::vector<Part> chain() override;
  DenseLayers dense_layers() override { return {fc1_.ptr(), fc2_.ptr(), head_.ptr()}; }

 protected:
  torch::nn::Linear fc1_, fc2_, head_;
};

/// Holds a second head that no forward reaches: DDP trains it only with find_unused_parameters.
class PimaNetBranch : public PimaNet {
 public:
  PimaNetBranch();

 private:
  torch::nn::Linear branch_;
};

}  // namespace lockstep
