#include "alias.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy_ops.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <cstring>

namespace lab {
namespace {

at::Tensor tensor_over(c10::Storage storage, const at::Tensor& like, int64_t offset) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), offset);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  if (like.is_conj()) made._set_conj(true);
  if (like.is_neg()) made._set_neg(true);
  return made;
}

c10::Storage storage_at(void* data, size_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                               at::DataPtr(data, at::kCPU), c10::GetCPUAllocator(),
                                               /*resizable=*/true);
}

}  // namespace

bool on_gpu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cuda() && tensor.layout() == at::kStrided;
}

at::Tensor alias_of(const at::Tensor& tensor) {
  const auto& storage = tensor.storage();
  return tensor_over(storage_at(const_cast<void*>(storage.data()), storage.nbytes()), tensor,
                     tensor.storage_offset());
}

Extent extent_of(const at::Tensor& alias) {
  if (alias.numel() == 0) return {};
  int64_t elements = 1;
  for (int64_t d = 0; d < alias.dim(); ++d) elements += (alias.size(d) - 1) * alias.stride(d);
  return {static_cast<char*>(const_cast<void*>(alias.const_data_ptr())),
          static_cast<size_t>(elements) * alias.element_size()};
}

at::Tensor twin_of(const at::Tensor& alias) {
  const Extent extent = extent_of(alias);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), extent.bytes,
                                                       c10::GetCPUAllocator(), /*resizable=*/true);
  if (extent.bytes > 0) std::memcpy(storage->mutable_data(), extent.begin, extent.bytes);
  return tensor_over(std::move(storage), alias, 0);
}

Snapshot::Snapshot(const at::Tensor& alias)
    : place_(extent_of(alias)), bytes_(place_.begin, place_.begin + place_.bytes) {}

void Snapshot::restore() const {
  if (!bytes_.empty()) std::memcpy(place_.begin, bytes_.data(), bytes_.size());
}

void poison(const at::Tensor& alias) {
  const Extent extent = extent_of(alias);
  if (extent.bytes > 0) std::memset(extent.begin, 0xff, extent.bytes);
}

void copy_into(const at::Tensor& to, const at::Tensor& from) {
  if (from.numel() == 0) return;
  if (from.sizes() == to.sizes() && from.strides() == to.strides() && from.dtype() == to.dtype() &&
      from.is_conj() == to.is_conj() && from.is_neg() == to.is_neg()) {
    const Extent source = extent_of(from);
    std::memcpy(extent_of(to).begin, source.begin, source.bytes);
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  to.copy_(from);
}

}  // namespace lab
