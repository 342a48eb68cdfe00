#include "lockstep/parallel/module_tensors.h"

#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <unordered_set>

namespace lockstep::parallel {
namespace {

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_sparse_gradients(const torch::nn::Module& module) {
  if (const auto* embedding = module.as<torch::nn::EmbeddingImpl>()) return embedding->options.sparse();
  if (const auto* bag = module.as<torch::nn::EmbeddingBagImpl>()) return bag->options.sparse();
  return false;
}

using Seen = std::unordered_set<c10::TensorImpl*>;

std::vector<NamedTensor> unique(const torch::OrderedDict<std::string, at::Tensor>& all, const Names& ignore) {
  std::vector<NamedTensor> result;
  Seen seen;
  for (const auto& item : all) {
    if (!item.value().defined() || contains(ignore, item.key())) continue;
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) result.push_back({item.key(), item.value()});
  }
  return result;
}

template <class Named>
std::vector<at::Tensor> tensors(const std::vector<Named>& named) {
  std::vector<at::Tensor> result;
  result.reserve(named.size());
  for (const auto& item : named) result.push_back(item.tensor);
  return result;
}

}  // namespace

std::vector<NamedTensor> unique_parameters(const torch::nn::Module& module, const Names& ignore) {
  return unique(module.named_parameters(), ignore);
}

std::vector<NamedTensor> unique_buffers(const torch::nn::Module& module, const Names& ignore) {
  return unique(module.named_buffers(), ignore);
}

std::vector<ReducedParameter> reduced_parameters(const torch::nn::Module& module, const Names& ignore) {
  std::vector<ReducedParameter> result;
  Seen seen;
  for (const auto& part : module.named_modules()) {
    const std::string prefix = part.key().empty() ? "" : part.key() + ".";
    for (const auto& item : part.value()->named_parameters(/*recurse=*/false)) {
      if (!item.value().requires_grad() || contains(ignore, prefix + item.key())) continue;
      if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
      result.push_back({prefix + item.key(), item.value(), has_sparse_gradients(*part.value())});
    }
  }
  return result;
}

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  return tensors(named);
}
std::vector<at::Tensor> tensors_of(const std::vector<ReducedParameter>& parameters) {
  return tensors(parameters);
}

std::vector<at::Device> devices_of(const torch::nn::Module& module) {
  std::vector<at::Device> devices;
  auto tensors = module.parameters();
  for (auto& buffer : module.buffers()) tensors.push_back(std::move(buffer));
  for (const auto& tensor : tensors)
    if (tensor.defined() && std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  return devices;
}

}  // namespace lockstep::parallel
