#include "data/table_set.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace lockstep {

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
  batch.target = at::empty({count}, options.dtype(at::kLong));
  const int64_t* labels = labels_.const_data_ptr<int64_t>();
  int64_t* target = batch.target.mutable_data_ptr<int64_t>();
  for (int64_t index : indices) *target++ = labels[index];
  return batch;
}

}  // namespace lockstep
