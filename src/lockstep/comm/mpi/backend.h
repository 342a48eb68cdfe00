#pragma once
// The backend "mpi": c10d's collectives on CPU tensors over MPI and the node's shared memory.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>

#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/mpi/transport.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {

/// Collectives run inside the call, on the caller's thread: for CPU tensors that beats handing them to
/// another. Errors arrive as c10d defines them: in the work's wait() and in its future.
class MpiBackend : public c10d::Backend, public RollCalled, public Carrier {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  /// Collective over `world`, whose ranks are the roll's.
  MpiBackend(mpi::Comm world, std::shared_ptr<RollCall> roll, std::chrono::milliseconds timeout);
  ~MpiBackend() override;
  const std::shared_ptr<RollCall>& shared_roll() const override { return roll_; }
  std::exception_ptr carry(const Collective& collective,
                           const std::function<void(Messenger&)>& body) override;
  /// Collective: moves the tensors' storages to where the ranks of a node sum them without copies, if there
  /// is room. Tensors alike on all ranks, dense and on the CPU.
  void share(const Tensors& tensors);

  const std::string getBackendName() const override { return "mpi"; }
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  c10::intrusive_ptr<Options> getBackendOptions() { return options_; }
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  void setTimeout(std::chrono::milliseconds timeout) { options_->timeout = timeout; }
  uint64_t getSequenceNumberForGroup() override { return number_; }

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
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  template <class Body>
  WorkPtr run(c10d::OpType type, const Tensors& tensors, const std::string& how,
              std::chrono::milliseconds timeout, Tensors results, Body&& body);
  std::string difference_from(const Call& own, Patience& patience);
  void reduce_all(at::Tensor& tensor, const c10d::ReduceOp& op, bool keep, Patience& patience);
  void scatter_sum(at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op, Patience& patience);
  template <class Start>
  WorkPtr post(c10d::OpType type, int peer, const at::Tensor& tensor, const at::Tensor& buffer,
               Start&& start);
  WorkPtr receive(c10d::OpType type, Tensors& tensors, int from, int tag);

  std::shared_ptr<RollCall> roll_;
  c10::intrusive_ptr<Options> options_;
  MpiTransport transport_;
  std::mutex mutex_;
  uint64_t number_ = 0;
};

}  // namespace lockstep::comm
