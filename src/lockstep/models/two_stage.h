#pragma once
// A small CNN in two stages, each on a device of its own: model parallelism inside one rank.

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "lockstep/models/net.h"

namespace lockstep {

/// simple_cnn's layers under the same names, drawn in the same order: for MNIST the two have the same bits,
/// and a checkpoint of one loads into the other.
class TwoStage : public Net {
 public:
  /// `devices`: where the convolutions and where the linear layers live, among a rank's own devices.
  TwoStage(const std::vector<int64_t>& input_shape, int64_t hidden, int64_t classes,
           std::vector<int64_t> devices);
  /// What `devices` are where a config names none.
  static std::vector<int64_t> own_devices() { return {0, 1}; }
  /// The input goes to the first stage's device, the output comes from the second's.
  torch::Tensor forward(const torch::Tensor& input) override;
  /// Puts the first stage onto this GPU, and the second as far beside it as their numbers in `devices` say;
  /// on a CPU both stay there, for its devices are logical. InputError for a device that is not there.
  void to(torch::Device device, bool non_blocking = false) override;
  bool use_own_kernels() override { return own_kernels_ = true; }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_;
  bool own_kernels_ = false;
  std::vector<int64_t> devices_;
  torch::Device first_ = torch::kCPU, second_ = torch::kCPU;
};

}  // namespace lockstep
