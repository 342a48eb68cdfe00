#pragma once
// Ranks that take themselves for several nodes, and the order in which the mpi backend sums over those.

#include <algorithm>

#include "comm/ranks/world.h"

#include "lockstep/base/libtorch.h"

namespace lockstep::test {

/// A rank's own random numbers.
inline at::Tensor fractions(int64_t items, at::ScalarType type, int seed = 0) {
  const auto generator =
      at::detail::createCPUGenerator(1000U + static_cast<uint64_t>(own_rank() + 64 * seed));
  return at::randn({items}, generator).to(type);
}

/// While it lives, the mpi backend takes every n ranks for a node of their own; -n: each nth rank for one of
/// n nodes; 0 pretends nothing.
class PretendNodes {
 public:
  explicit PretendNodes(int ranks) { ranks_per_node = ranks; }
  ~PretendNodes() { ranks_per_node = 0; }
  PretendNodes(PretendNodes&&) = delete;

  static int ranks_per_node;
};

/// The sum as the mpi backend promises it: by rank within nodes of so many (0: all on one), by node.
inline at::Tensor sum_in_order(const ProcessGroup& group, at::Tensor mine, int per_node) {
  at::Tensor all = at::empty({group->getSize() * mine.numel()}, mine.options());
  base::own_all_gather_single(*group, all, mine)->wait();
  const auto inputs = all.chunk(group->getSize());
  if (per_node == 0) per_node = group->getSize();
  at::Tensor sum;
  for (int first = 0; first < group->getSize(); first += per_node) {
    at::Tensor node = inputs[size_t(first)];
    for (int rank = first + 1; rank < std::min(group->getSize(), first + per_node); ++rank)
      node = node + inputs[size_t(rank)];
    sum = sum.defined() ? sum + node : node;
  }
  return sum;
}

}  // namespace lockstep::test
