#pragma once
// Trees between ranks: a checkpoint that rank 0 has read, on every rank, and what each rank has, on rank 0.
// They travel between the CPUs where the group can, and a rank holds one piece beside the trees.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"

namespace lockstep::parallel {

// The bytes of many tensors in a row, which travel in pieces that know nothing of where a tensor ends.

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

/// What rank 0's `read` returns, on every rank; its error, too. `piece`: the most bytes under way.
/// Collective.
Tree share_tree(const Team& team, const std::function<Tree()>& read, int64_t piece = kInFlight);

/// Every rank's, in rank order, on rank 0; nothing elsewhere. Rank after rank, so that nobody holds more than
/// one beside what rank 0 puts together. Collective.
std::vector<Tree> gather_trees(const Team& team, const Tree& own, int64_t piece = kInFlight);

}  // namespace lockstep::parallel
