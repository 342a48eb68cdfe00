#pragma once
// torchvision's resnet18: the same names, initial parameters and results, bit for bit.

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "lockstep/models/chain.h"
#include "lockstep/models/net.h"

namespace lockstep {

/// 18 layers with weights, 11.7 million parameters for 1,000 classes. Images of any size from 1 x 1.
class ResNet18 : public Net, public Chain {
 public:
  explicit ResNet18(int64_t classes);
  /// Maps [n, 3, h, w] to [n, classes].
  torch::Tensor forward(const torch::Tensor& input) override;
  std::vector<Part> chain() override;
  /// Recomputes each block's activations in backward: same results bit for bit, less memory.
  void use_checkpointing(bool on) { checkpointing_ = on; }

 private:
  torch::Tensor start(const torch::Tensor& x);
  torch::Tensor through(const torch::nn::Sequential& layer, torch::Tensor x) const;

  bool checkpointing_ = false;

  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  std::vector<torch::nn::Sequential> layers_;
  torch::nn::Linear fc_ = nullptr;
};

/// Loads torchvision's state_dict (.pt, .pth, .safetensors), except for the last layer if the number of
/// classes differs. Returns whether it loaded that layer. Throws InputError if anything else does not match.
bool load_pretrained(ResNet18& model, const std::string& path);

}  // namespace lockstep
