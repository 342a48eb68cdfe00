#pragma once
// Collectives over bytes, and those of the ranks of one node through their shared memory.

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

// In which order the ranks' numbers become one, place by place of a message.

/// The ranks here are numbered within their node.
class ReductionOrder {
 public:
  /// Rank 0, rank 1, ...: the bits do not depend on how a message is cut.
  static ReductionOrder by_rank(size_t ranks) { return {ranks, 0}; }
  /// The order of gloo's ring, whose chunks have so many bytes (algorithms/gloo_chunks.h).
  static ReductionOrder as_gloo(size_t ranks, size_t chunk_bytes) { return {ranks, chunk_bytes}; }

  /// Where the order changes next after byte `at`.
  size_t end_of(size_t at) const { return chunk_ == 0 ? ~size_t{0} : (at / chunk_ + 1) * chunk_; }
  /// The rank that begins at byte `at`.
  size_t first(size_t at) const { return chunk_ == 0 ? 0 : (at / chunk_ + ranks_ - 1) % ranks_; }
  /// The one that comes after it.
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

/// One collective at a time. After an exception it is out of step: make no further call.
class Transport {
 public:
  virtual ~Transport() = default;
  /// `out` null: take part without wanting the result. Where `in` is `out` and lies at the same place of a
  /// block on all ranks of the node, nothing is copied. `order` says in which order a node's ranks are
  /// summed.
  virtual void all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                          const ReductionOrder& order, BoundedWait& wait) = 0;
  virtual void broadcast(std::byte* data, size_t bytes, int root, BoundedWait& wait) = 0;
  /// Rank r's bytes go to outs[r].
  virtual void all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                          BoundedWait& wait) = 0;
  /// ins[r] is what this rank gives to rank r; out is the sum of what the ranks give to this one, which
  /// begins at byte `at` of the message that `order` is for.
  virtual void reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                              const Reduction& reduction, const ReductionOrder& order, size_t at,
                              BoundedWait& wait) = 0;
  /// Messages between any ranks, all at once, as long as those who receive them expect. `most`: the bytes of
  /// the longest that one rank has for another, the same on all of them.
  virtual void exchange(std::span<const Outgoing> out, std::span<const Incoming> in, size_t most,
                        BoundedWait& wait) = 0;
  virtual void barrier(BoundedWait& wait) = 0;

  /// The part that the ranks of this node do among themselves.
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
  /// This rank's place among those of its node, which is that of its piece of a block.
  int place() const { return segment_.rank(); }
  /// Whether the ranks of this node outnumber the cores they may run on.
  bool crowded() const { return crowded_; }
  /// Collective over the node: memory for tensors that all_reduce sums where it lies; null on all ranks alike
  /// where there is none.
  std::shared_ptr<shm::Block> take_block(size_t bytes, BoundedWait& wait) {
    return blocks_.take(node_, bytes, wait);
  }
  /// Whether all ranks of the node give the same place of a block, where it is worth asking.
  bool all_bring(const std::byte* in, const std::byte* out, size_t bytes, BoundedWait& wait);
  /// The places that all_bring() has found, by local rank.
  const std::vector<std::byte*>& shares() const { return shares_; }
  /// All ranks' `places`, summed into the first: this rank's section of it. One wave of posts lies before it.
  void sum_section_for_first(const std::vector<std::byte*>& places, size_t bytes, const Reduction& reduction,
                             const ReductionOrder& order);

 private:
  // A stretch of the message that is summed: where it begins there.
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
  // of one sum: where it reads, by rank, and where it writes
  std::vector<const std::byte*> sources_, ordered_;
  std::vector<std::byte*> outs_, moved_;
};

/// The slot of ranks that are all on one node.
size_t slot_bytes_for(size_t ranks);

/// Collective over these ranks: each one's text at this stage, by place.
std::vector<std::string> exchange(c10d::Store& store, const std::string& stage, const NodeRanks& node,
                                  const std::string& own);

/// What `open` returns, which waits for other ranks; or throws the error that names who did not come in time.
template <class Open>
auto name_late_ranks(PeerMonitor& monitor, std::chrono::milliseconds timeout, Open&& open) {
  const Collective opening{"sharing memory in a node", 0, timeout};
  std::exception_ptr error;
  try {
    return open();
  } catch (const WaitExpired& reason) {
    error = monitor.diagnose(opening, reason.cause, reason.timed_out);
  } catch (const c10::DistStoreError& late) {  // the store has waited for a rank
    error = monitor.diagnose(opening, late.what_without_backtrace(), true);
  } catch (const std::exception& failed) {
    error = monitor.diagnose(opening, failed.what(), false);
  }
  std::rethrow_exception(error);
}

/// Collective over the node's ranks: their transport; or null on all of them alike, and `why` says why they
/// share no memory. Throws the error that names who did not come in time.
std::unique_ptr<NodeTransport> open_node(PeerMonitor& monitor, const std::string& stage,
                                         const NodeRanks& node, size_t slot_bytes,
                                         std::chrono::milliseconds timeout, std::string& why);

}  // namespace lockstep::comm
