#pragma once
// The bytes of many tensors in a row, which travel in pieces that know nothing of where a tensor ends.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::parallel {

/// How many bytes an exchange of state holds at a time, whatever it exchanges.
constexpr int64_t kInFlight = int64_t{64} << 20;

/// Flat tensors of bytes, one after the other.
struct Stretches {
  std::vector<at::Tensor> bytes;
  int64_t total = 0;

  void add(at::Tensor stretch) {
    total += stretch.numel();
    bytes.push_back(std::move(stretch));
  }
};

/// Calls copy(part of a stretch, its place in the slot) for all that lies in [from, from + slot's size).
template <class Copy>
void for_each_part(const Stretches& all, int64_t from, const at::Tensor& slot, const Copy& copy) {
  int64_t begin = 0;
  for (const auto& stretch : all.bytes) {
    const auto first = std::max(from, begin), last = std::min(from + slot.numel(), begin + stretch.numel());
    if (first < last)
      copy(stretch.slice(0, first - begin, last - begin), slot.slice(0, first - from, last - from));
    begin += stretch.numel();
  }
}

/// Fills the slot, or the stretches from it.
inline void take_from(const Stretches& all, int64_t from, const at::Tensor& slot) {
  for_each_part(all, from, slot, [](const at::Tensor& part, at::Tensor place) { place.copy_(part); });
}
inline void put_into(const Stretches& all, int64_t from, const at::Tensor& slot) {
  for_each_part(all, from, slot, [](at::Tensor part, const at::Tensor& place) { part.copy_(place); });
}

}  // namespace lockstep::parallel
