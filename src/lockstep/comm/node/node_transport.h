#pragma once
// Collectives of the ranks of one node, through their shared memory.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/memory/node_window.h"
#include "lockstep/comm/node/transport.h"

namespace lockstep::comm {

class NodeTransport : public Transport {
 public:
  /// Collective over the node.
  NodeTransport(NodeMemory memory, NodeRanks node, size_t slot_bytes, BoundedWait& wait);

  void all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                  const ReductionOrder& fold, BoundedWait& wait) override;
  void broadcast(std::byte* data, size_t bytes, int root, BoundedWait& wait) override;
  void all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                  BoundedWait& wait) override;
  void reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                      const Reduction& reduction, const ReductionOrder& fold, size_t at,
                      BoundedWait& wait) override;
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in, size_t most,
                BoundedWait& wait) override;
  void barrier(BoundedWait& wait) override;
  void name_call(const CallWord& call) override { window_.name_call(call); }
  void arrive() override { window_.arrive(); }
  bool all_arrived() override { return window_.all_arrived(); }
  std::shared_ptr<NodeBlock> take_block(size_t bytes, BoundedWait& wait) override {
    return blocks_.take(bytes, wait);
  }
  int place() const override { return window_.rank(); }
  bool crowded() const override { return crowded_; }

  // What a transport over several nodes makes its own collectives of.
  NodeWindow& window() { return window_; }
  /// Whether all ranks of the node give the same place of a block, where it is worth asking.
  bool all_bring(const std::byte* in, const std::byte* out, size_t bytes, BoundedWait& wait);
  /// The places that all_bring() has found, by local rank.
  const std::vector<std::byte*>& shares() const { return shares_; }
  /// All ranks' `places`, summed into the first: this rank's section of it. One wave of posts lies before it.
  void sum_section_for_first(const std::vector<std::byte*>& places, size_t bytes, const Reduction& reduction,
                             const ReductionOrder& fold);

  NodeTransport(const NodeTransport&) = delete;
  NodeTransport& operator=(const NodeTransport&) = delete;

 private:
  // A stretch of the message that is summed: where it begins there.
  struct Part {
    size_t at;
    size_t bytes;
  };
  void reduce_small(const std::byte* in, std::byte* out, Part part, const Reduction& reduction,
                    const ReductionOrder& fold, BoundedWait& wait);
  void reduce_large(const std::byte* in, std::byte* out, Part part, const Reduction& reduction,
                    const ReductionOrder& fold, BoundedWait& wait);
  void reduce_in_place(size_t bytes, const Reduction& reduction, const ReductionOrder& fold,
                       BoundedWait& wait);
  void write_to_slots(size_t offset);
  void sum(const Reduction& reduction, const ReductionOrder& fold, Part part);

  NodeWindow window_;
  NodeBlocks blocks_{window_};
  bool crowded_;
  std::vector<std::byte*> shares_;
  // of one sum: where it reads, by rank, and where it writes
  std::vector<const std::byte*> sources_, ordered_;
  std::vector<std::byte*> outs_, moved_;
};

/// What a slot has for so many ranks that are alone among themselves.
size_t slot_bytes_for(size_t ranks);

/// What `open` gives, which waits for other ranks; or throws the error that names who did not come in time.
template <class Open>
auto name_late_ranks(RollCall& roll, std::chrono::milliseconds timeout, Open&& open) {
  const Collective opening{"sharing memory in a node", 0, timeout};
  std::exception_ptr error;
  try {
    return open();
  } catch (const WaitExpired& reason) {
    error = roll.diagnose(opening, reason.cause, reason.timed_out);
  } catch (const c10::DistStoreError& late) {  // the store has waited for a rank
    error = roll.diagnose(opening, late.what_without_backtrace(), true);
  } catch (const std::exception& failed) {
    error = roll.diagnose(opening, failed.what(), false);
  }
  std::rethrow_exception(error);
}

/// Collective over the node's ranks: their transport, or nothing on all of them alike, and `why` says why
/// there is no shared memory between them. Throws the error that names who did not come in time.
std::unique_ptr<NodeTransport> open_node(RollCall& roll, const std::string& stage, const NodeRanks& node,
                                         size_t slot_bytes, std::chrono::milliseconds timeout,
                                         std::string& why);

}  // namespace lockstep::comm
