#pragma once
// Another backend whose all-reduce is one of comm/algorithms: messages over its lines. All else is its own.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/algorithms/delayed.h"
#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {

/// All-reduces run in the order of their calls on one thread of their own: backward goes on meanwhile. Errors
/// arrive as c10d defines them, in the work's wait() and in its future.
class AlgorithmBackend : public c10d::Backend, public RollCalled, public Carrier {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  /// `base` is a Carrier, and counts its collectives in `roll`.
  AlgorithmBackend(c10::intrusive_ptr<c10d::Backend> base, const Algorithm& algorithm, Delay delay,
                   std::shared_ptr<RollCall> roll, std::chrono::milliseconds timeout);
  ~AlgorithmBackend() override;
  const std::shared_ptr<RollCall>& shared_roll() const override { return roll_; }
  const std::string getBackendName() const override { return algorithm_.name; }
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  uint64_t getSequenceNumberForGroup() override { return base_->getSequenceNumberForGroup(); }
  void setSequenceNumberForGroup() override {}

  /// For the collectives that begin from now on.
  void set_delay(Delay delay);
  /// How long all-reduces have been at work here, in seconds.
  double busy() const;
  /// With the delay, on the caller's thread; not while an all-reduce is under way.
  std::exception_ptr carry(const Collective& collective,
                           const std::function<void(Messenger&)>& body) override;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_counts,
                        std::vector<int64_t>& input_counts, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  class Sum;  // the work of one call
  WorkPtr begin(c10d::OpType type, const Tensors& tensors, const c10d::ReduceOp& op,
                std::chrono::milliseconds timeout);
  void compare(const Collective& collective, c10d::OpType type, const Tensors& tensors,
               const c10d::ReduceOp& op);
  void serve();
  std::exception_ptr death();
  std::exception_ptr run(Sum& sum);

  c10::intrusive_ptr<c10d::Backend> base_;
  Carrier& carrier_;
  const Algorithm& algorithm_;
  std::shared_ptr<RollCall> roll_;
  std::atomic<std::chrono::milliseconds> timeout_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Delay delay_;
  double busy_ = 0;
  std::deque<c10::intrusive_ptr<Sum>> waiting_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace lockstep::comm
