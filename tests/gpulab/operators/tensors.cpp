#include "tensors.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/resize_ops.h>
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

namespace {

at::Tensor kept_number(const at::Tensor& given) {
  at::Tensor kept = given.clone();
  if (given.unsafeGetTensorImpl()->is_wrapped_number()) kept.unsafeGetTensorImpl()->set_wrapped_number(true);
  return kept;
}

}  // namespace

const Operands::Operand* Operands::find(const at::Tensor& given) const {
  for (const auto& operand : all_)
    if (operand.given.is_same(given)) return &operand;
  return nullptr;
}

void Operands::add(const at::Tensor& given, bool written) {
  if (!given.defined() || given.is_meta()) return;
  if (const auto* known = find(given)) {
    if (written && !known->written) {
      auto& operand = const_cast<Operand&>(*known);
      operand.written = true;
      if (on_copies_) operand.first = twin_of(operand.real);
    }
    return;
  }
  if (!on_gpu(given)) {
    const at::Tensor kept = is_kept_ ? kept_number(given) : given;
    all_.push_back({given, kept, kept, false});
    return;
  }
  const at::Tensor real = alias_of(given);
  all_.push_back({given, real, written && on_copies_ ? twin_of(real) : real, written});
}

at::Tensor Operands::first(const at::Tensor& given) const {
  const auto* operand = find(given);
  return operand ? operand->first : given;
}

at::Tensor Operands::again(const at::Tensor& given) const {
  const auto* operand = find(given);
  return operand ? operand->real : given;
}

std::vector<at::Tensor> Operands::written() const {
  std::vector<at::Tensor> result;
  for (const auto& operand : all_)
    if (operand.written) result.push_back(operand.real);
  return result;
}

void Operands::follow_size(Operand& operand, bool late) {
  const bool moved = !on_copies_ && operand.first.storage().data() != operand.given.storage().data();
  if (operand.first.sizes() == operand.given.sizes() && !moved) return;
  const auto& first = operand.first;
  const auto reach = static_cast<int64_t>(extent_of(first).bytes / first.element_size());
  operand.given.resize_({first.storage_offset() + reach});
  operand.given.unsafeGetTensorImpl()->set_sizes_and_strides(first.sizes(), first.strides(),
                                                             first.storage_offset());
  operand.real = alias_of(operand.given);
  if (!late) copy_into(operand.real, first);
}

void Operands::follow_sizes(bool late) {
  for (auto& operand : all_)
    if (operand.written) follow_size(operand, late);
}

at::Tensor Operands::given_for(const at::Tensor& returned) const {
  for (const auto& operand : all_)
    if (operand.first.is_same(returned)) return operand.given;
  for (const auto& operand : all_) {
    if (!on_gpu(operand.given) || operand.first.storage().nbytes() == 0) continue;
    if (operand.first.storage().data() != returned.storage().data()) continue;
    if (operand.first.scalar_type() != returned.scalar_type()) continue;
    const auto offset =
        returned.storage_offset() + operand.real.storage_offset() - operand.first.storage_offset();
    return operand.given.as_strided(returned.sizes(), returned.strides(), offset);
  }
  return {};
}

}  // namespace lab
