#pragma once
// Copies of a module, one a device, that are made once and brought up to date before each forward.

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::parallel {

using MakeReplica = std::function<std::shared_ptr<torch::nn::Module>(at::Device)>;

class Replicas {
 public:
  /// InputError where a replica is not built as the module is. What making one draws leaves no trace in the
  /// random numbers.
  Replicas(std::shared_ptr<torch::nn::Module> module, const std::vector<at::Device>& devices,
           const MakeReplica& make);

  /// Parameters, buffers and modes of the first `count` become the module's. `keep`: the backward of
  /// an earlier forward may still come, which needs the values that are there: they are written only where
  /// they differ.
  void refresh(size_t count, bool keep);

  const std::shared_ptr<torch::nn::Module>& operator[](size_t device) const { return copies_[device].module; }

  /// A parameter of a replica that wants a gradient, and the place of the module's own in sources().
  struct Leaf {
    at::Tensor tensor;
    size_t source;
  };
  std::vector<Leaf> leaves(size_t device) const;
  /// The module's parameters, each once.
  const std::vector<at::Tensor>& sources() const { return sources_; }

 private:
  struct Pair {
    at::Tensor own, original;
    size_t source = 0;
  };
  struct Copy {
    at::Device device;
    std::shared_ptr<torch::nn::Module> module;
    std::vector<Pair> parameters, buffers;
  };
  void pair_up(Copy& copy);

  std::shared_ptr<torch::nn::Module> module_;
  std::vector<at::Tensor> sources_;
  std::vector<Copy> copies_;
};

}  // namespace lockstep::parallel
