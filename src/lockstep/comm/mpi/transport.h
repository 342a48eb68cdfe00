#pragma once
// Collectives over bytes: through the node's shared window, and between nodes through their first ranks.

#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/comm/mpi/comms.h"
#include "lockstep/comm/mpi/node_blocks.h"
#include "lockstep/comm/mpi/node_link.h"
#include "lockstep/comm/mpi/node_window.h"
#include "lockstep/comm/mpi/patience.h"
#include "lockstep/comm/mpi/reduction.h"

namespace lockstep::comm {

/// One collective at a time. Sums are in rank order within a node, then in node order. After an exception the
/// window is out of step: make no further call.
class MpiTransport {
 public:
  /// Collective over `world`, of which it makes communicators of its own.
  explicit MpiTransport(mpi::Comm world);

  /// `out` null: take part without wanting the result. Where `in` is `out` and lies at the same place of a
  /// block on all ranks of the node, nothing is copied.
  void all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                  Patience& patience);
  void broadcast(std::byte* data, size_t bytes, int root, Patience& patience);
  /// Rank r's bytes go to outs[r].
  void all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs, Patience& patience);
  /// ins[r] is what this rank gives to rank r; out is what the ranks' gifts to this one come to.
  void reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                      const Reduction& reduction, Patience& patience);
  void barrier(Patience& patience);
  /// Memory for tensors that all_reduce sums where it lies; or none, on all ranks of the node alike.
  std::shared_ptr<NodeBlock> take_block(size_t bytes, Patience& patience) {
    return blocks_.take(bytes, patience);
  }

  bool crowded() const { return crowded_; }
  const MpiComms& comms() const { return comms_; }
  /// MPI is entered by one thread at a time.
  const std::shared_ptr<std::mutex>& mpi() const { return mpi_; }

 private:
  std::vector<std::byte*> slots(size_t offset = 0) const;
  size_t chunk_bytes(const Reduction& reduction) const;
  void all_reduce_chunk(const std::byte* in, std::byte* out, size_t bytes, const Reduction& reduction,
                        Patience& patience);
  void reduce_small(const std::byte* in, std::byte* out, size_t bytes, const Reduction& reduction,
                    Patience& patience);
  void reduce_large(const std::byte* in, std::byte* out, size_t bytes, const Reduction& reduction,
                    Patience& patience);
  void reduce_over_nodes(const std::byte* in, std::byte* out, size_t bytes, const Reduction& reduction,
                         Patience& patience);
  void sum_for_leader(const std::vector<std::byte*>& shares, size_t bytes, const Reduction& reduction,
                      Patience& patience);
  bool all_bring(const NodeBlocks::Place& place, Patience& patience);
  void reduce_in_place(const NodeBlocks::Place& place, size_t bytes, const Reduction& reduction,
                       Patience& patience);
  void reduce_in_place_over_nodes(const std::vector<std::byte*>& shares, size_t bytes,
                                  const Reduction& reduction, Patience& patience);
  void gather_in_node(size_t bytes, size_t at, const std::vector<std::byte*>& outs, Patience& patience);
  void gather_over_nodes(size_t bytes, size_t at, const std::vector<std::byte*>& outs, Patience& patience);
  void share_from_leader(Patience& patience);
  bool is_leader() const { return comms_.local_rank == 0; }

  MpiComms comms_;
  std::shared_ptr<std::mutex> mpi_ = std::make_shared<std::mutex>();
  NodeWindow window_;
  NodeBlocks blocks_{window_};
  NodeLink link_;
  bool crowded_;
  std::vector<std::byte> scratch_;
};

}  // namespace lockstep::comm
