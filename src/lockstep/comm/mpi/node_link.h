#pragma once
// What the first ranks of the nodes exchange over MPI, waiting with a deadline.

#include <cstddef>
#include <mutex>
#include <vector>

#include "lockstep/comm/memory/patience.h"
#include "lockstep/comm/memory/reduction.h"
#include "lockstep/comm/mpi/comms.h"

namespace lockstep::comm {

/// Only MPI's data movement is used, so the order of summation is ours: node 0 + node 1 + node 2 ….
class NodeLink {
 public:
  NodeLink(const MpiComms& comms, std::mutex& mpi) : comms_(comms), mpi_(mpi) {}

  bool needed() const { return comms_.nodes > 1; }
  bool is_leader() const { return comms_.local_rank == 0; }

  void all_reduce(std::byte* data, size_t items, const Reduction& reduction, Patience& patience);
  void broadcast(std::byte* data, size_t bytes, int root_node, Patience& patience);
  /// Blocks of `bytes` a rank, node by node: `node_blocks` holds this node's, `all` receives everybody's.
  void all_gather(const std::byte* node_blocks, size_t bytes, std::byte* all, Patience& patience);
  void barrier(Patience& patience);

 private:
  template <class Start>
  void run(const char* call, Patience& patience, Start&& start);

  const MpiComms& comms_;
  std::mutex& mpi_;
  std::vector<std::byte> padded_, sections_, own_;
};

}  // namespace lockstep::comm
