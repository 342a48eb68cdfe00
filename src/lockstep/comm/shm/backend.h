#pragma once
// c10d's collectives on CPU tensors over a transport: the backends "shared" and "mpi".

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "lockstep/comm/shm/call_queue.h"
#include "lockstep/comm/shm/intercepted_backend.h"
#include "lockstep/comm/shm/transport.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/peer_monitor.h"

namespace lockstep::comm {

/// What the ranks of a node compare of a call. `alike`: see tensors_alike().
CallWord word_for(const BackendCall& call, const std::vector<at::Tensor>& alike);

/// Where a collective runs.
enum class Execution {
  in_the_call,            // always
  in_the_call_or_behind,  // on a thread of its own where another rank does not come within milliseconds
};

/// In which order the ranks are summed.
enum class SumOrder { by_rank, as_gloo };

/// Collectives run inside the call, on the caller's thread: for CPU tensors that is faster than a second
/// thread. Errors arrive as c10d defines them: in the work's wait() and in its future.
class TransportBackend : public InterceptedBackend, public MonitoredBackend {
 public:
  /// `inner` runs calls that the transport does not support. It may be null.
  TransportBackend(const std::string& name, BackendPtr inner, std::unique_ptr<Transport> transport,
                   std::shared_ptr<PeerMonitor> monitor, std::chrono::milliseconds timeout, SumOrder order,
                   Execution runs);
  ~TransportBackend() override;
  const std::shared_ptr<PeerMonitor>& shared_monitor() const override { return monitor_; }
  /// Collective: moves the tensors' storages into shared memory, where the ranks of a node sum them without
  /// copies, if there is room. The tensors are equal on all ranks, dense and on the CPU.
  void share(const Tensors& tensors);

  const std::string getBackendName() const override { return options_->backend; }
  // NOLINTBEGIN(modernize-use-override): older libtorchs have none of that name
  c10::intrusive_ptr<Options> getBackendOptions() { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) {
    options_->timeout = timeout;
    if (inner()) base::set_timeout(*inner(), timeout);
  }
  // NOLINTEND(modernize-use-override)
  uint64_t getSequenceNumberForGroup() override { return number_; }
  void setSequenceNumberForGroup() override {}

 protected:
  WorkPtr around(const BackendCall& call, Tensors& outputs, Tensors& inputs, InnerCall inner) override;

  Transport& transport() const { return *transport_; }
  std::chrono::milliseconds timeout() const { return options_->timeout; }
  PeerMonitor& monitor() { return *monitor_; }
  /// As MessageRunner::compare().
  void compare_calls(const Call& own, const Collective& collective);
  /// The one tensor, dense and on the CPU, or c10::Error.
  const at::Tensor& single(const Tensors& tensors) const;

 private:
  /// Runs a collective after the other ranks have made the same call.
  using Body = std::function<void(BoundedWait& wait)>;
  struct StartedCall;

  bool is_for_inner(const BackendCall& call, const Tensors& outputs, const Tensors& inputs) const;
  Body body_of(const BackendCall& call, const Tensors& outputs, const Tensors& inputs);
  Body gather_body(const BackendCall& call, const Tensors& outputs, const Tensors& inputs);
  Body exchange_body(const BackendCall& call, const Tensors& outputs, const Tensors& inputs);
  Body all_gather_body(const Tensors& inputs, const std::vector<Tensors>& outputs);
  Body scatter_sum_body(const Tensors& outputs, const std::vector<Tensors>& inputs, bool in_one,
                        c10d::ReduceOp::RedOpType op);
  WorkPtr run(const BackendCall& call, const Tensors& alike, Tensors results, Body body);
  std::exception_ptr carry_out(const StartedCall& started, const Body& body);
  void compare_in(BoundedWait& wait, const Call& own, uint64_t number);
  ReductionOrder order_for(c10d::OpType type, size_t items, size_t item_bytes) const;
  void reduce_all(at::Tensor tensor, c10d::ReduceOp::RedOpType op, c10d::OpType type, bool keep,
                  BoundedWait& wait);
  void reduce_coalesced(Tensors tensors, c10d::ReduceOp::RedOpType op, BoundedWait& wait);
  void scatter_sum(at::Tensor output, const Tensors& inputs, bool in_one, c10d::ReduceOp::RedOpType op,
                   BoundedWait& wait);
  void require_dense_cpu(const at::Tensor& tensor) const;
  void require_alike(const at::Tensor& tensor, const at::Tensor& like) const;
  void require_one_a_rank(const Tensors& tensors, const at::Tensor& like) const;
  bool is_soon_done();

  std::shared_ptr<PeerMonitor> monitor_;
  c10::intrusive_ptr<Options> options_;
  SumOrder order_;
  Execution runs_;
  std::unique_ptr<Transport> transport_;
  std::recursive_mutex mutex_;  // a callback of a queued call may call again
  std::atomic<uint64_t> number_{0};
  std::atomic<bool> inner_is_busy_{false};  // with a collective that no barrier has followed
  CallQueue queue_;                         // ends before the rest does
};

}  // namespace lockstep::comm
