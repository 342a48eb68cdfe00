#pragma once
// PyTorch's gloo backend, counting its collectives, so that an error can name the ranks at fault. It is a
// ProcessGroupGloo: c10d's Logger casts whatever calls itself "gloo" down to one.

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <memory>

#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/roll_call.h"
#include "lockstep/comm/watch/watched_work.h"

namespace lockstep::comm {

class WatchedGloo : public c10d::ProcessGroupGloo, public RollCalled, public Carrier {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  WatchedGloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
              c10::intrusive_ptr<Options> options, std::shared_ptr<RollCall> roll);
  ~WatchedGloo() override;
  const std::shared_ptr<RollCall>& shared_roll() const override { return roll_; }
  std::exception_ptr carry(const Collective& collective, const std::function<void(Messenger&)>& body,
                           const OnGivenUp& on_given_up) override;
  void compare(const Call& own, const Collective& collective) override;
  /// For every collective from now on; the lines are those that gloo has opened. A group that dies is cut off
  /// and left as it is: gloo's own end can wait for ever for a peer that is gone.
  void keep_time(std::chrono::milliseconds timeout, Connections lines);
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  void setTimeout(std::chrono::milliseconds timeout) { options_->timeout = timeout; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options);
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options);
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                const c10d::ReduceScatterOptions& options);
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options);
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_counts,
                            std::vector<int64_t>& input_counts, const c10d::AllToAllOptions& options);
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  // NOLINTBEGIN(modernize-use-override)
  // Names until libtorch 2.13, and still the ones that older versions call.
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
    return all_gather_single(output, input, options);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
    return all_gather_single_coalesced(outputs, inputs, options);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) {
    return reduce_scatter_single(output, input, options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) {
    return reduce_scatter_single_coalesced(outputs, inputs, options);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_counts,
                        std::vector<int64_t>& input_counts, const c10d::AllToAllOptions& options) {
    return all_to_all_single(output, input, output_counts, input_counts, options);
  }
  // NOLINTEND(modernize-use-override)

 private:
  void require_other(int rank, const char* what) const;
  void tell_end(const WorkPtr& work, const std::shared_ptr<CollectiveWatch>& watch);
  template <class Start>
  WorkPtr watch_message(c10d::OpType type, int peer, Start&& start);
  void compare_in(CollectiveWatch& watch, const Call& own, uint64_t number);
  /// `tensors` and `how` say what every rank must call alike.
  template <class Start>
  WorkPtr watch(c10d::OpType type, const Tensors& tensors, const std::string& how,
                std::chrono::milliseconds timeout, Start&& start);

  std::shared_ptr<RollCall> roll_;
  std::shared_ptr<TimeoutThread> limits_;
};

}  // namespace lockstep::comm
