#include "lockstep/data/token_set.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

namespace lockstep {
namespace {

std::span<const int32_t> span_of(const Tokens& part, int64_t row) {
  const int64_t* starts = part.starts.const_data_ptr<int64_t>();
  const int32_t* ids = part.ids.const_data_ptr<int32_t>();
  return {ids + starts[row], ids + starts[row + 1]};
}

// input_ids, token_type_ids and attention_mask of one sample, `width` numbers each.
void lay(const Tokens& part, int64_t row, int64_t width, int64_t pad, int64_t* into) {
  const auto tokens = span_of(part, row);
  const int64_t second = part.seconds.const_data_ptr<int32_t>()[row];
  std::fill(std::ranges::copy(tokens, into).out, into + width, pad);
  std::fill_n(into + width, 2 * width, 0);
  std::fill(into + width + second, into + width + tokens.size(), 1);
  std::fill_n(into + 2 * width, tokens.size(), 1);
}

template <class Value>
void copy_target(const at::Tensor& from, int64_t row, const at::Tensor& into, int64_t at) {
  into.mutable_data_ptr<Value>()[at] = from.const_data_ptr<Value>()[row];
}

}  // namespace

TokenSet::TokenSet(std::vector<Tokens> parts, int64_t pad) : parts_(std::move(parts)), pad_(pad), size_(0) {
  for (const auto& part : parts_) ends_.push_back(size_ += part.size());
}

TokenSet::TokenSet(Tokens part, std::vector<int64_t> rows, int64_t pad)
    : parts_{std::move(part)},
      rows_(std::move(rows)),
      pad_(pad),
      size_(static_cast<int64_t>(rows_.size())),
      picked_(true) {}

TokenSet::Place TokenSet::place(int64_t index) const {
  if (picked_) return {&parts_[0], rows_[static_cast<size_t>(index)]};
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  const int64_t before = end == ends_.begin() ? 0 : *(end - 1);
  return {&parts_[static_cast<size_t>(end - ends_.begin())], index - before};
}

Batch TokenSet::get(at::ArrayRef<int64_t> indices, bool pinned) const {
  const auto count = static_cast<int64_t>(indices.size());
  std::vector<Place> places;
  int64_t width = 0;
  for (int64_t index : indices) {
    places.push_back(place(index));
    width = std::max(width, std::ssize(span_of(*places.back().part, places.back().row)));
  }
  const auto options = at::TensorOptions().pinned_memory(pinned);
  Batch batch;
  batch.input = at::empty({count, 3, width}, options.dtype(at::kLong));
  int64_t* into = batch.input.mutable_data_ptr<int64_t>();
  for (const auto& [part, row] : places) {
    lay(*part, row, width, pad_, into);
    into += 3 * width;
  }
  if (parts_.empty() || !parts_[0].targets.defined()) return batch;
  const bool numbers = parts_[0].targets.is_floating_point();
  batch.target = numbers ? at::empty({count, 1}, options.dtype(at::kFloat))
                         : at::empty({count}, options.dtype(at::kLong));
  for (int64_t i = 0; i < count; ++i) {
    const auto& [part, row] = places[static_cast<size_t>(i)];
    numbers ? copy_target<float>(part->targets, row, batch.target, i)
            : copy_target<int64_t>(part->targets, row, batch.target, i);
  }
  return batch;
}

std::vector<int64_t> TokenSet::lengths() const {
  std::vector<int64_t> list;
  list.reserve(static_cast<size_t>(size_));
  for (int64_t i = 0; i < size_; ++i) {
    const auto [part, row] = place(i);
    list.push_back(std::ssize(span_of(*part, row)));
  }
  return list;
}

}  // namespace lockstep
