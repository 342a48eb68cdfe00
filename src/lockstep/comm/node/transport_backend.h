#pragma once
// c10d's collectives on CPU tensors over a transport of ours.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "lockstep/base/libtorch.h"
#include "lockstep/comm/node/call_queue.h"
#include "lockstep/comm/node/forwarding_backend.h"
#include "lockstep/comm/node/transport.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {

/// Where a collective runs.
enum class Execution {
  in_the_call,            // always
  in_the_call_or_behind,  // on a thread of its own, where another rank does not come within milliseconds
};

/// Whose order the sums have.
enum class SumOrder { by_rank, as_gloo };

/// Collectives run inside the call, on the caller's thread: for CPU tensors that beats handing them to
/// another. Errors arrive as c10d defines them: in the work's wait() and in its future.
class TransportBackend : public ForwardingBackend, public RollCalled {
 public:
  /// What the transport has not, `base` does; it may be null.
  TransportBackend(const std::string& name, const c10::intrusive_ptr<c10d::Backend>& base,
                   std::unique_ptr<Transport> transport, std::shared_ptr<RollCall> roll,
                   std::chrono::milliseconds timeout, SumOrder order, Execution runs);
  ~TransportBackend() override;
  const std::shared_ptr<RollCall>& shared_roll() const override { return roll_; }
  /// Collective: moves the tensors' storages to where the ranks of a node sum them without copies, if there
  /// is room. Tensors alike on all ranks, dense and on the CPU.
  void share(const Tensors& tensors);

  const std::string getBackendName() const override { return options_->backend; }
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  c10::intrusive_ptr<Options> getBackendOptions() { return options_; }
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  void setTimeout(std::chrono::milliseconds timeout) {
    options_->timeout = timeout;
    if (has_base_) base::set_timeout(*base(), timeout);
  }
  uint64_t getSequenceNumberForGroup() override { return number_; }
  void setSequenceNumberForGroup() override {}

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_counts,
                        std::vector<int64_t>& input_counts, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 protected:
  Transport& transport() const { return *transport_; }
  std::chrono::milliseconds timeout() const { return options_->timeout; }
  RollCall& roll_call() { return *roll_; }
  /// As a Carrier does.
  void compare_calls(const Call& own, const Collective& collective);
  /// The one tensor, dense and on the CPU, or c10::Error.
  at::Tensor& single(Tensors& tensors) const;

 private:
  using Spans = std::vector<std::span<std::byte>>;
  struct Asked;
  struct Beginning;
  static CallWord word_for(const Asked& asked, const Tensors& tensors);
  static std::string how_of(const Asked& asked);
  template <class Body>
  WorkPtr run(const Asked& asked, const Tensors& tensors, Tensors results, Body body);
  template <class Body>
  std::exception_ptr carry_out(const Beginning& beginning, const Body& body);
  void compare_in(BoundedWait& wait, const Call& own, uint64_t number);
  ReductionOrder fold_for(c10d::OpType type, size_t items, size_t item_bytes) const;
  void reduce_all(at::Tensor tensor, const c10d::ReduceOp& op, c10d::OpType type, bool keep,
                  BoundedWait& wait);
  void reduce_coalesced(Tensors tensors, const c10d::ReduceOp& op, BoundedWait& wait);
  void scatter_sum(at::Tensor output, const Tensors& inputs, bool in_one, const c10d::ReduceOp& op,
                   BoundedWait& wait);
  WorkPtr exchange(std::chrono::milliseconds limit, Tensors results, Tensors outputs, const Tensors& inputs);
  size_t agree_on_sizes(at::ScalarType type, const Spans& out, const Spans& in, BoundedWait& wait);
  Tensors list_of_root(const TensorLists& lists, int root, const at::Tensor& like) const;
  void require_dense_cpu(const at::Tensor& tensor) const;
  void require_alike(const at::Tensor& tensor, const at::Tensor& like) const;
  bool is_for_base(const Tensors& tensors) const;
  bool is_soon_done();

  bool has_base_;
  std::shared_ptr<RollCall> roll_;
  c10::intrusive_ptr<Options> options_;
  SumOrder order_;
  Execution runs_;
  std::unique_ptr<Transport> transport_;
  std::recursive_mutex mutex_;  // a callback of what was waiting may call again
  std::atomic<uint64_t> number_{0};
  CallQueue queue_;  // ends before the rest does
};

}  // namespace lockstep::comm
