#pragma once
// A module exported by Python's torch.jit.save, trained like any other model and without Python.

#include <torch/csrc/jit/api/module.h>

#include <string>

#include "lockstep/models/net.h"

namespace lockstep {

/// Parameters and buffers stand under Python's names; train() and eval() reach into the script.
class TorchScriptNet : public Net {
 public:
  /// Throws InputError for a file that is missing or not a TorchScript module.
  explicit TorchScriptNet(const std::string& path);
  torch::Tensor forward(const torch::Tensor& input) override;
  void train(bool on = true) override;

 private:
  std::string path_;
  torch::jit::Module script_;
};

}  // namespace lockstep
