#pragma once
// Another backend whose all-reduce is one of comm/algorithms: messages over its lines. All else is its own.

#include <atomic>
#include <memory>
#include <mutex>

#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/algorithms/delayed.h"
#include "lockstep/comm/memory/reduction.h"
#include "lockstep/comm/node/call_queue.h"
#include "lockstep/comm/node/forwarding_backend.h"
#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {

/// All-reduces run in the order of their calls on one thread of their own: backward goes on meanwhile. Errors
/// arrive as c10d defines them, in the work's wait() and in its future.
class AlgorithmBackend : public ForwardingBackend, public RollCalled, public Carrier {
 public:
  /// `base` is a Carrier, and counts its collectives in `roll`.
  AlgorithmBackend(c10::intrusive_ptr<c10d::Backend> base, const Algorithm& algorithm, Delay delay,
                   std::shared_ptr<RollCall> roll, std::chrono::milliseconds timeout);
  const std::shared_ptr<RollCall>& shared_roll() const override { return roll_; }
  const std::string getBackendName() const override { return algorithm_.name; }
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  uint64_t getSequenceNumberForGroup() override { return roll_->begun(); }
  void setSequenceNumberForGroup() override {}

  /// For the collectives that begin from now on.
  void set_delay(Delay delay);
  /// How long all-reduces have been at work here, in seconds.
  double busy() const { return queue_.busy(); }
  /// With the delay, on the caller's thread; not while an all-reduce is under way.
  std::exception_ptr carry(const Collective& collective, const std::function<void(Messenger&)>& body,
                           const OnGivenUp& on_given_up) override;
  void compare(const Call& own, const Collective& collective) override { carrier_.compare(own, collective); }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;

 private:
  WorkPtr begin(c10d::OpType type, const Tensors& tensors, const c10d::ReduceOp& op,
                std::chrono::milliseconds timeout);
  std::exception_ptr run(const Collective& collective, const Tensors& tensors,
                         const std::vector<Reduction>& reductions);

  Carrier& carrier_;
  const Algorithm& algorithm_;
  std::shared_ptr<RollCall> roll_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::mutex mutex_;
  Delay delay_;
  CallQueue queue_;  // ends before the rest does
};

}  // namespace lockstep::comm
