#pragma once
// gloo over several nodes, whose sums are made in each node's shared memory: the same bits in fewer messages.

#include <atomic>
#include <memory>

#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/node/call_queue.h"
#include "lockstep/comm/node/forwarding_backend.h"
#include "lockstep/comm/node/node_transport.h"
#include "lockstep/comm/node/nodes_ring.h"
#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {

/// All-reduces of one short, dense CPU tensor run in the order of their calls on a thread of their own; all
/// else is gloo's. Of a short one the messages cost the time, and gloo has more of them with each rank; of a
/// long one the bytes, which gloo sends while it adds.
class NodesBackend : public ForwardingBackend, public RollCalled {
 public:
  /// Of a message that is not gloo's, whatever the world; `node` has slots for it.
  static constexpr size_t kMostBytes = size_t{256} << 10;
  /// `gloo` is a Carrier. `node` is that of the own node's ranks.
  NodesBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::unique_ptr<NodeTransport> node, NodeLayout layout,
               std::shared_ptr<RollCall> roll, std::chrono::milliseconds timeout);
  const std::shared_ptr<RollCall>& shared_roll() const override { return roll_; }
  const std::string getBackendName() const override { return "shared"; }
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  void setTimeout(std::chrono::milliseconds timeout);
  uint64_t getSequenceNumberForGroup() override { return roll_->begun(); }
  void setSequenceNumberForGroup() override {}

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 private:
  bool is_ours(const Tensors& tensors, const c10d::ReduceOp& op) const;
  std::exception_ptr sum(const Collective& collective, const CallWord& word, at::Tensor tensor,
                         const Reduction& reduction);

  Carrier& carrier_;
  std::unique_ptr<NodeTransport> node_;
  NodesRing ring_;
  std::shared_ptr<RollCall> roll_;
  std::atomic<std::chrono::milliseconds> timeout_;
  CallQueue queue_;  // ends before the rest does
};

}  // namespace lockstep::comm
