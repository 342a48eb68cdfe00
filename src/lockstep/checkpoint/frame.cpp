#include "lockstep/checkpoint/frame.h"

#include <torch/types.h>

#include <unordered_map>

namespace lockstep::checkpoint {
namespace {

// What stands for a tensor: these numbers, then its sizes, then its strides.
struct Place {
  enum : size_t { storage, bytes, dtype, offset, dimensions, sizes };
};

at::Tensor storage_of(const at::Tensor& tensor) {
  const auto length = static_cast<int64_t>(tensor.storage().nbytes());
  return at::empty({0}, tensor.options().dtype(at::kByte)).set_(tensor.storage(), 0, {length}, {1});
}

at::Tensor description_of(const at::Tensor& tensor, int64_t number) {
  std::vector<int64_t> all = {number, static_cast<int64_t>(tensor.storage().nbytes()),
                              static_cast<int64_t>(tensor.scalar_type()), tensor.storage_offset(),
                              tensor.dim()};
  all.insert(all.end(), tensor.sizes().begin(), tensor.sizes().end());
  all.insert(all.end(), tensor.strides().begin(), tensor.strides().end());
  return torch::tensor(all, at::kLong);
}

at::Tensor described(const at::IntArrayRef& all, const at::Tensor& storage) {
  const auto sizes = all.slice(Place::sizes, static_cast<size_t>(all[Place::dimensions]));
  const auto strides = all.slice(Place::sizes + sizes.size(), sizes.size());
  return at::empty({0}, at::dtype(static_cast<at::ScalarType>(all[Place::dtype])))
      .set_(storage.storage(), all[Place::offset], sizes, strides);
}

}  // namespace

WithStorages take_apart(const Tree& tree) {
  WithStorages framed;
  std::unordered_map<const c10::StorageImpl*, int64_t> numbers;
  framed.tree = map_tensors(tree, [&](const at::Tensor& tensor) -> Tree {
    require_dense(tensor);
    const auto next = static_cast<int64_t>(framed.storages.size());
    const auto [found, is_new] = numbers.emplace(tensor.storage().unsafeGetStorageImpl(), next);
    if (is_new) framed.storages.push_back(storage_of(tensor.detach()));
    return description_of(tensor, found->second);
  });
  return framed;
}

WithStorages lay_out(const Tree& frame) {
  WithStorages filled;
  filled.tree = map_tensors(frame, [&](const at::Tensor& description) -> Tree {
    const at::IntArrayRef all(description.const_data_ptr<int64_t>(),
                              static_cast<size_t>(description.numel()));
    const auto number = static_cast<size_t>(all[Place::storage]);
    if (number == filled.storages.size())
      filled.storages.push_back(at::empty({all[Place::bytes]}, at::kByte));
    return described(all, filled.storages.at(number));
  });
  return filled;
}

}  // namespace lockstep::checkpoint
