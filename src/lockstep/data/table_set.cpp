#include "lockstep/data/table_set.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace lockstep {
namespace {

template <class Label>
void copy_labels(const at::Tensor& from, at::ArrayRef<int64_t> indices, const at::Tensor& into) {
  const Label* labels = from.const_data_ptr<Label>();
  Label* target = into.mutable_data_ptr<Label>();
  const int64_t columns = from.dim() > 1 ? from.size(1) : 1;
  for (int64_t index : indices) target = std::copy_n(labels + index * columns, columns, target);
}

}  // namespace

TableSet::TableSet(at::Tensor features, at::Tensor labels)
    : features_(std::move(features)), labels_(std::move(labels)) {}

Batch TableSet::get(at::ArrayRef<int64_t> indices, bool pinned) const {
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t columns = features_.size(1);
  const auto options = at::TensorOptions().pinned_memory(pinned);
  Batch batch;
  batch.input = at::empty({count, columns}, options.dtype(at::kFloat));
  const float* rows = features_.const_data_ptr<float>();
  float* out = batch.input.mutable_data_ptr<float>();
  for (int64_t index : indices) out = std::copy_n(rows + index * columns, columns, out);
  if (!labels_.defined()) return batch;
  if (labels_.is_floating_point()) {
    batch.target = at::empty({count, labels_.dim() > 1 ? labels_.size(1) : 1}, options.dtype(at::kFloat));
    copy_labels<float>(labels_, indices, batch.target);
  } else {
    batch.target = at::empty({count}, options.dtype(at::kLong));
    copy_labels<int64_t>(labels_, indices, batch.target);
  }
  return batch;
}

std::optional<WholeSet> TableSet::whole() const {
  return WholeSet{features_, labels_, {}};
}

}  // namespace lockstep
