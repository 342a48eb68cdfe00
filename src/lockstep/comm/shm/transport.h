#pragma once
// Collectives over bytes, and their implementation in the shared memory of one node.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/shm/bounded_wait.h"
#include "lockstep/comm/shm/reduction.h"
#include "lockstep/comm/shm/segment.h"

namespace lockstep::comm {

// The order in which the ranks' values are summed, for each place of a message.

/// Ranks are local ranks of a node.
class ReductionOrder {
 public:
  /// Rank 0, rank 1, ...: the bits do not depend on chunks.
  static ReductionOrder by_rank(size_t ranks) { return {ranks, 0}; }
  /// The order of gloo's ring with chunks of so many bytes (algorithms/gloo_chunks.h).
  static ReductionOrder as_gloo(size_t ranks, size_t chunk_bytes) { return {ranks, chunk_bytes}; }

  /// The next place after byte `at` where the order changes.
  size_t end_of(size_t at) const { return chunk_ == 0 ? ~size_t{0} : (at / chunk_ + 1) * chunk_; }
  /// The rank that begins at byte `at`.
  size_t first(size_t at) const { return chunk_ == 0 ? 0 : (at / chunk_ + ranks_ - 1) % ranks_; }
  /// The rank after it.
  size_t next(size_t rank) const {
    if (chunk_ == 0) return rank + 1;
    return rank == 0 ? ranks_ - 1 : rank - 1;
  }

 private:
  ReductionOrder(size_t ranks, size_t chunk) : ranks_(ranks), chunk_(chunk) {}

  size_t ranks_;
  size_t chunk_;  // 0: by rank
};

class NodeTransport;

/// One collective at a time. After an exception make no further call.
class Transport {
 public:
  virtual ~Transport() = default;
  /// `out` may be null if this rank does not need the result. If `in` is `out` and at the same place of a
  /// block on all ranks of the node, nothing is copied. The ranks of a node are summed in this `order`.
  virtual void all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                          const ReductionOrder& order, BoundedWait& wait) = 0;
  virtual void broadcast(std::byte* data, size_t bytes, int root, BoundedWait& wait) = 0;
  /// Rank r's bytes go to outs[r].
  virtual void all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                          BoundedWait& wait) = 0;
  /// ins[r] is this rank's contribution to rank r. `out` is the sum of all contributions to this rank, which
  /// begins at byte `at` of the message that `order` refers to.
  virtual void reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                              const Reduction& reduction, const ReductionOrder& order, size_t at,
                              BoundedWait& wait) = 0;
  /// Messages between any ranks, all at once. Senders and receivers know the sizes. `most` is the size of the
  /// longest message of all ranks, the same on all of them.
  virtual void exchange(std::span<const Outgoing> out, std::span<const Incoming> in, size_t most,
                        BoundedWait& wait) = 0;
  virtual void barrier(BoundedWait& wait) = 0;

  /// The transport between the ranks of this node.
  virtual NodeTransport& node() = 0;
};

class NodeTransport : public Transport {
 public:
  /// Collective over the node.
  NodeTransport(shm::Block block, const NodeRanks& node, size_t slot_bytes, BoundedWait& wait);

  void all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                  const ReductionOrder& order, BoundedWait& wait) override;
  void broadcast(std::byte* data, size_t bytes, int root, BoundedWait& wait) override;
  void all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                  BoundedWait& wait) override;
  void reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                      const Reduction& reduction, const ReductionOrder& order, size_t at,
                      BoundedWait& wait) override;
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in, size_t most,
                BoundedWait& wait) override;
  void barrier(BoundedWait& wait) override;
  NodeTransport& node() override { return *this; }

  shm::Segment& segment() { return segment_; }
  /// This rank's local rank, which is the index of its piece of a block.
  int place() const { return segment_.rank(); }
  /// Whether this node has more ranks than cores for them.
  bool crowded() const { return crowded_; }
  /// Collective over the node: memory for tensors that all_reduce sums in place; null on all if none.
  std::shared_ptr<shm::Block> take_block(size_t bytes, BoundedWait& wait) {
    return blocks_.take(node_, bytes, wait);
  }
  /// Whether all ranks of the node pass the same place of a block. Small messages do not check.
  bool all_bring(const std::byte* in, const std::byte* out, size_t bytes, BoundedWait& wait);
  /// The places from all_bring(), by local rank.
  const std::vector<std::byte*>& shares() const { return shares_; }
  /// Sums this rank's section of all ranks' `places` into the first. All ranks have posted before.
  void sum_section_for_first(const std::vector<std::byte*>& places, size_t bytes, const Reduction& reduction,
                             const ReductionOrder& order);

 private:
  // A part of the summed message, and where it begins there.
  struct Part {
    size_t at;
    size_t bytes;
  };
  void reduce_small(const std::byte* in, std::byte* out, Part part, const Reduction& reduction,
                    const ReductionOrder& order, BoundedWait& wait);
  void reduce_large(const std::byte* in, std::byte* out, Part part, const Reduction& reduction,
                    const ReductionOrder& order, BoundedWait& wait);
  void reduce_in_place(size_t bytes, const Reduction& reduction, const ReductionOrder& order,
                       BoundedWait& wait);
  void write_to_slots(size_t offset);
  void sum(const Reduction& reduction, const ReductionOrder& order, Part part);

  NodeRanks node_;
  shm::Segment segment_;
  shm::TensorBlocks blocks_{segment_};
  bool crowded_;
  std::vector<std::byte*> shares_;
  // of one sum: the inputs, by rank, and the outputs
  std::vector<const std::byte*> sources_, ordered_;
  std::vector<std::byte*> outs_, moved_;
};

/// The slot size if all ranks are on one node.
size_t slot_bytes_for(size_t ranks);

/// Collective over these ranks: each rank's text at this stage, by local rank.
std::vector<std::string> exchange(c10d::Store& store, const std::string& stage, const NodeRanks& node,
                                  const std::string& own);

/// Calls `open`, which waits for other ranks. Throws an error that names the ranks that did not come in time.
template <class Open>
auto name_late_ranks(PeerMonitor& monitor, std::chrono::milliseconds timeout, Open&& open) {
  const Collective opening{"sharing memory in a node", 0, timeout};
  std::exception_ptr error;
  try {
    return open();
  } catch (const WaitExpired& reason) {
    error = monitor.diagnose(opening, reason.cause, reason.timed_out);
  } catch (const c10::DistStoreError& late) {  // the store timed out
    error = monitor.diagnose(opening, late.what_without_backtrace(), true);
  } catch (const std::exception& failed) {
    error = monitor.diagnose(opening, failed.what(), false);
  }
  std::rethrow_exception(error);
}

/// Collective over the node's ranks: their transport, or null on all of them if they cannot share memory;
/// then `why` has the reason. Throws an error that names the ranks that did not come in time.
std::unique_ptr<NodeTransport> open_node(PeerMonitor& monitor, const std::string& stage,
                                         const NodeRanks& node, size_t slot_bytes,
                                         std::chrono::milliseconds timeout, std::string& why);

}  // namespace lockstep::comm
