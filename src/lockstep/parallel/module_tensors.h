#pragma once
// A module's parameters and buffers as Python's DDP lists them: order, names, duplicates, ignored ones.

#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace lockstep::parallel {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

struct ReducedParameter {
  std::string name;
  at::Tensor tensor;
  bool sparse_gradient = false;  // an Embedding made with sparse(true)
};

using Names = std::vector<std::string>;

/// All parameters except the ignored ones; each once, even if modules share it.
std::vector<NamedTensor> unique_parameters(const torch::nn::Module& module, const Names& ignore = {});
std::vector<NamedTensor> unique_buffers(const torch::nn::Module& module, const Names& ignore = {});

/// Those the Reducer handles: they require a gradient. In the order of named_modules.
std::vector<ReducedParameter> reduced_parameters(const torch::nn::Module& module, const Names& ignore = {});

template <class Named>
std::vector<at::Tensor> tensors_of(const std::vector<Named>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& item : named) tensors.push_back(item.tensor);
  return tensors;
}

/// The devices of a module's parameters and buffers.
std::vector<at::Device> devices_of(const torch::nn::Module& module);

}  // namespace lockstep::parallel
