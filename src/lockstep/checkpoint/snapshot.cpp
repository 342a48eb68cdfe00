// A copy of a tree that training cannot change any more.
#include <torch/types.h>

#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/map_tensors.h"
#include "lockstep/checkpoint/tree.h"

namespace lockstep {

namespace {

using checkpoint::map_tensors;
using Uses = std::unordered_map<const c10::StorageImpl*, int>;

bool covers_its_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.nbytes() == tensor.storage().nbytes();
}

/// The whole storage as a flat tensor of the same dtype.
at::Tensor flat(const at::Tensor& tensor) {
  const auto length = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return tensor.as_strided({length}, {1}, 0);
}

}  // namespace

Tree snapshot(const Tree& tree) {
  Uses uses;
  map_tensors(tree, [&](const at::Tensor& tensor) -> Tree {
    checkpoint::require_dense(tensor);
    ++uses[tensor.storage().unsafeGetStorageImpl()];
    return tensor;
  });
  std::unordered_map<const c10::StorageImpl*, at::Tensor> copies;
  return map_tensors(tree, [&](const at::Tensor& shared) -> Tree {
    const auto tensor = shared.detach();
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    if (uses[storage] == 1 && !covers_its_storage(tensor)) {
      return at::empty(tensor.sizes(), tensor.options().device(at::kCPU)).copy_(tensor);
    }
    auto& copy = copies[storage];
    if (!copy.defined()) copy = flat(tensor).to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
    if (copy.scalar_type() != tensor.scalar_type()) return tensor.to(at::kCPU).clone();
    return copy.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  });
}

}  // namespace lockstep
