#pragma once
// A module saved by Python's torch.jit.save. It trains like any other model, without Python.

#include <torch/csrc/jit/api/module.h>

#include <string>

#include "lockstep/models/net.h"

namespace lockstep {

/// Parameters and buffers have Python's names; train() and eval() also apply to the script.
class TorchScriptNet : public Net {
 public:
  /// Throws InputError if the file is missing or is not a TorchScript module.
  explicit TorchScriptNet(const std::string& path);
  torch::Tensor forward(const torch::Tensor& input) override;
  void train(bool on = true) override;

 private:
  std::string path_;
  torch::jit::Module script_;
};

}  // namespace lockstep
