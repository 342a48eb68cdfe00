#include "lockstep/parallel/module_tensors.h"

#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <unordered_set>

namespace lockstep::parallel {
namespace {

template <class Item>
bool contains(const std::vector<Item>& items, const Item& item) {
  return std::find(items.begin(), items.end(), item) != items.end();
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

std::vector<at::Device> devices_of(const torch::nn::Module& module) {
  std::vector<at::Device> devices;
  auto tensors = module.parameters();
  for (auto& buffer : module.buffers()) tensors.push_back(std::move(buffer));
  for (const auto& tensor : tensors)
    if (tensor.defined() && !contains(devices, tensor.device())) devices.push_back(tensor.device());
  return devices;
}

}  // namespace lockstep::parallel
