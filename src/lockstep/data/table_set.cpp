#include "lockstep/data/table_set.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

at::Tensor rows_of(const at::Tensor& from, at::ArrayRef<int64_t> indices, bool pinned) {
  auto shape = from.sizes().vec();
  shape[0] = static_cast<int64_t>(indices.size());
  auto rows = at::empty(shape, from.options().pinned_memory(pinned));
  const auto* in = static_cast<const char*>(from.const_data_ptr());
  auto* out = static_cast<char*>(rows.mutable_data_ptr());
  const size_t bytes = from.nbytes() / static_cast<size_t>(std::max<int64_t>(from.size(0), 1));
  for (const int64_t index : indices) {
    std::memcpy(out, in + static_cast<size_t>(index) * bytes, bytes);
    out += bytes;
  }
  return rows;
}

}  // namespace

TableSet::TableSet(at::Tensor features, at::Tensor labels)
    : features_(std::move(features)), labels_(std::move(labels)) {}

Batch TableSet::get(at::ArrayRef<int64_t> indices, bool pinned) const {
  return {rows_of(features_, indices, pinned),
          labels_.defined() ? rows_of(labels_, indices, pinned) : at::Tensor()};
}

std::optional<DatasetTensors> TableSet::whole() const {
  return DatasetTensors{features_, labels_, {}};
}

}  // namespace lockstep
