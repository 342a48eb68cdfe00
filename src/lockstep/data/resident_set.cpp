#include "lockstep/data/resident_set.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace lockstep::data {

ResidentSet::ResidentSet(const DatasetTensors& set, at::Device device) : samples_(set.samples.to(device)) {
  if (set.targets.defined()) targets_ = set.targets.to(device);
  if (!set.table.defined()) return;
  table_ = set.table.flatten().to(device);
  const int64_t channels = set.table.size(0), entries = set.table.size(1);
  if (channels > 1)
    beginning_ = at::arange(0, channels * entries, entries, at::TensorOptions(at::kInt).device(device))
                     .view({channels, 1, 1});
}

Batch ResidentSet::get(at::ArrayRef<int64_t> indices, bool) const {
  // page-locked: otherwise the copy would wait for the device's queued work
  const auto options = at::TensorOptions(at::kLong).pinned_memory(samples_.is_cuda());
  const auto numbers = at::empty({static_cast<int64_t>(indices.size())}, options);
  std::copy(indices.begin(), indices.end(), numbers.mutable_data_ptr<int64_t>());
  return gather(numbers.to(samples_.device(), /*non_blocking=*/true));
}

Batch ResidentSet::gather(const at::Tensor& numbers) const {
  return {input_of(numbers), targets_.defined() ? targets_.index_select(0, numbers) : at::Tensor()};
}

at::Tensor ResidentSet::input_of(const at::Tensor& numbers) const {
  auto chosen = samples_.index_select(0, numbers);
  if (!table_.defined()) return chosen;
  auto places = chosen.to(at::kInt);
  if (beginning_.defined()) places.add_(beginning_);
  return table_.index_select(0, places.flatten()).view(chosen.sizes());
}

int64_t ResidentSet::bytes() const {
  size_t bytes = 0;
  for (const auto* tensor : {&samples_, &targets_, &table_})
    bytes += tensor->defined() ? tensor->nbytes() : 0;
  return static_cast<int64_t>(bytes);
}

}  // namespace lockstep::data
