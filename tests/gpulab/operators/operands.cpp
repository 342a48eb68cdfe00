#include "operands.h"

#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/resize_ops.h>

#include "alias.h"

namespace lab {
namespace {

at::Tensor kept_number(const at::Tensor& given) {
  at::Tensor kept = given.clone();
  if (given.unsafeGetTensorImpl()->is_wrapped_number()) kept.unsafeGetTensorImpl()->set_wrapped_number(true);
  return kept;
}

}  // namespace

const Operands::Operand* Operands::find(const at::Tensor& given) const {
  for (const auto& operand : all_) {
    if (operand.given.is_same(given)) return &operand;
  }
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
  for (const auto& operand : all_) {
    if (operand.written) result.push_back(operand.real);
  }
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
  for (auto& operand : all_) {
    if (operand.written) follow_size(operand, late);
  }
}

at::Tensor Operands::given_for(const at::Tensor& returned) const {
  for (const auto& operand : all_) {
    if (operand.first.is_same(returned)) return operand.given;
  }
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
