#pragma once
// Collectives over bytes, as a backend's transport offers them.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/memory/call_word.h"
#include "lockstep/comm/memory/node_blocks.h"
#include "lockstep/comm/memory/patience.h"
#include "lockstep/comm/memory/reduction.h"
#include "lockstep/comm/node/fold.h"

namespace lockstep::comm {

/// One collective at a time. After an exception it is out of step: make no further call.
class Transport {
 public:
  virtual ~Transport() = default;
  /// `out` null: take part without wanting the result. Where `in` is `out` and lies at the same place of a
  /// block on all ranks of the node, nothing is copied. `fold` says in which order a node's ranks are summed.
  virtual void all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                          const Fold& fold, Patience& patience) = 0;
  virtual void broadcast(std::byte* data, size_t bytes, int root, Patience& patience) = 0;
  /// Rank r's bytes go to outs[r].
  virtual void all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                          Patience& patience) = 0;
  /// ins[r] is what this rank gives to rank r; out is what the ranks' gifts to this one come to, which begins
  /// at byte `at` of the message that `fold` cuts.
  virtual void reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                              const Reduction& reduction, const Fold& fold, size_t at,
                              Patience& patience) = 0;
  /// Messages between any ranks, all at once, as long as those who receive them expect. `most`: the bytes of
  /// the longest that one rank has for another, the same on all of them.
  virtual void exchange(std::span<const Outgoing> out, std::span<const Incoming> in, size_t most,
                        Patience& patience) = 0;
  virtual void barrier(Patience& patience) = 0;

  /// What the next collective is; ranks of a node that are in another throw UnlikeCalls.
  virtual void name_call(const CallWord& call) = 0;
  /// Says to its node that this rank has come to its next collective.
  virtual void arrive() = 0;
  /// Whether all of the node do so within some milliseconds.
  virtual bool all_arrived() = 0;
  /// Memory for tensors that all_reduce sums where it lies; or none, on all ranks of the node alike.
  virtual std::shared_ptr<NodeBlock> take_block(size_t bytes, Patience& patience) = 0;
  /// This rank's place among those of its node, which is that of its piece of a block.
  virtual int place() const = 0;
  /// Whether the ranks of this node outnumber the cores they may run on.
  virtual bool crowded() const = 0;
};

}  // namespace lockstep::comm
