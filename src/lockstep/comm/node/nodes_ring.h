#pragma once
// Sums over several nodes to gloo's bits: what a node adds is added in its shared memory, and only partial
// sums travel.

#include <cstddef>
#include <vector>

#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/memory/bounded_wait.h"
#include "lockstep/comm/memory/node_window.h"
#include "lockstep/comm/memory/reduction.h"

namespace lockstep::comm {

/// The ranks of a group by node: node n has those from firsts[n] to firsts[n + 1] - 1.
struct NodeLayout {
  std::vector<int> firsts;  // and the world at the end
  int own = 0;              // this rank's node

  int nodes() const { return static_cast<int>(firsts.size()) - 1; }
  int first(int node) const { return firsts[static_cast<size_t>(node)]; }
  int ranks(int node) const { return first(node + 1) - first(node); }
  int world() const { return firsts.back(); }
};

/// gloo's ring adds chunk c of a message in the order of the ranks c - 1, c - 2, ... c, round the ring: that
/// passes from node to node, each of which adds all of its ranks at once. So a partial sum makes as many
/// steps as there are nodes, not ranks, and then the sums make one less.
class NodesRing {
 public:
  /// `window` is that of the own node's ranks.
  NodesRing(NodeWindow& window, NodeLayout layout);

  /// Of all ranks, in place: no more than a slot holds. Collective over the group.
  void all_reduce(Messenger& messenger, std::byte* data, size_t items, const Reduction& reduction,
                  BoundedWait& wait);

 private:
  struct Message;
  struct Span;
  class Pass;

  int handlers(size_t bytes) const;

  NodeWindow& window_;
  NodeLayout layout_;
  int most_handlers_;  // ranks that each node has
};

}  // namespace lockstep::comm
