#pragma once
// Trees between ranks: sends a checkpoint from rank 0 to all, and gathers every rank's state on rank 0. The
// data goes from CPU to CPU if the group can, and a rank holds one piece besides the trees.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"

namespace lockstep::checkpoint {

/// The bytes that an exchange of state holds at a time.
constexpr int64_t kInFlight = int64_t{64} << 20;

/// Flat tensors of bytes, one after the other; exchanged in pieces, whatever the tensors' sizes.
struct ByteTensors {
  std::vector<at::Tensor> bytes;
  int64_t total = 0;

  void add(at::Tensor stretch) {
    total += stretch.numel();
    bytes.push_back(std::move(stretch));
  }
};

/// Calls copy(part of a stretch, its place in the slot) for all bytes in [from, from + slot's size).
template <class Copy>
void for_each_part(const ByteTensors& all, int64_t from, const at::Tensor& slot, const Copy& copy) {
  int64_t begin = 0;
  for (const auto& stretch : all.bytes) {
    const auto first = std::max(from, begin), last = std::min(from + slot.numel(), begin + stretch.numel());
    if (first < last)
      copy(stretch.slice(0, first - begin, last - begin), slot.slice(0, first - from, last - from));
    begin += stretch.numel();
  }
}

/// Fills the slot, or the stretches from it.
inline void take_from(const ByteTensors& all, int64_t from, const at::Tensor& slot) {
  for_each_part(all, from, slot, [](const at::Tensor& part, at::Tensor place) { place.copy_(part); });
}
inline void put_into(const ByteTensors& all, int64_t from, const at::Tensor& slot) {
  for_each_part(all, from, slot, [](at::Tensor part, const at::Tensor& place) { part.copy_(place); });
}

/// What rank 0's `read` returns, or its error, on every rank. `piece`: the most bytes at once. Collective.
Tree share_tree(const Team& team, const std::function<Tree()>& read, int64_t piece = kInFlight);

/// Every rank's tree, in rank order, on rank 0; empty on the others. Rank after rank, so that no other rank
/// holds more than its own. Collective.
std::vector<Tree> gather_trees(const Team& team, const Tree& own, int64_t piece = kInFlight);

}  // namespace lockstep::checkpoint
