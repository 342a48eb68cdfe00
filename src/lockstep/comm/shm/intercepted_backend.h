#pragma once
// A c10d backend that passes all calls through one function, around(), which can monitor them, copy their
// tensors or run some of them differently.

#include <c10/util/FunctionRef.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/libtorch.h"

namespace lockstep::comm {

/// A collective or a message as its caller requested it, without its tensors.
struct BackendCall {
  c10d::OpType type;
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  std::optional<c10d::ReduceOp::RedOpType> reduction = {};
  int64_t root = -1;   // of a message: the other rank
  int tag = 0;         // of a message
  bool lists = false;  // an all-gather of several tensors into a list for each rank
  const std::vector<int64_t>*output_rows = nullptr, *input_rows = nullptr;  // of an all-to-all of one tensor

  bool is_message() const {
    using c10d::OpType;
    return type == OpType::SEND || type == OpType::RECV || type == OpType::RECVANYSOURCE;
  }
};

/// The tensors that must be equal in type and size on all ranks: none in an all-to-all.
const std::vector<at::Tensor>& tensors_alike(const BackendCall& call, const std::vector<at::Tensor>& outputs,
                                             const std::vector<at::Tensor>& inputs);
/// What follows the call's name in an error: " (sum) to rank 1".
std::string details_of(const BackendCall& call);

std::vector<at::Tensor> joined(const std::vector<std::vector<at::Tensor>>& lists);
/// Splits joined tensors into lists with the lengths of `like`.
std::vector<std::vector<at::Tensor>> split_as(const std::vector<std::vector<at::Tensor>>& like,
                                              const std::vector<at::Tensor>& all);

/// If `Base` is c10d::Backend, calls continue in another backend, `inner`. If `Base` is another backend
/// class, they continue in its own functions and `inner` is null.
template <class Base>
class Intercepted : public Base {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using Milliseconds = std::chrono::milliseconds;

  template <class... Args>
  explicit Intercepted(BackendPtr inner, Args&&... args)
      : Base(std::forward<Args>(args)...), inner_(std::move(inner)) {}

// A backend's own function, whatever derives from it overrides.
#define LOCKSTEP_INNER(...) (inner_ ? inner_->__VA_ARGS__ : Base::__VA_ARGS__)
// The same of those that have two names: the one until libtorch 2.13, and the one since.
#define LOCKSTEP_RENAMED_INNER(was, name, ...) \
  (inner_ ? inner_->was(__VA_ARGS__) : base::own_##name<Base>(*this, __VA_ARGS__))

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return in_place({OpType::BROADCAST, options.timeout, {}, options.rootRank}, tensors,
                    [&](Tensors& own, Milliseconds limit) {
                      return LOCKSTEP_INNER(broadcast(own, with(options, limit)));
                    });
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return in_place({OpType::ALLREDUCE, options.timeout, options.reduceOp}, tensors,
                    [&](Tensors& own, Milliseconds limit) {
                      return LOCKSTEP_INNER(allreduce(own, with(options, limit)));
                    });
  }
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return in_place({OpType::_ALLREDUCE_SPARSE, options.timeout, options.reduceOp}, tensors,
                    [&](Tensors& own, Milliseconds limit) {
                      return LOCKSTEP_INNER(allreduce_sparse(own, with(options, limit)));
                    });
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return in_place({OpType::ALLREDUCE_COALESCED, options.timeout, options.reduceOp}, tensors,
                    [&](Tensors& own, Milliseconds limit) {
                      return LOCKSTEP_INNER(allreduce_coalesced(own, with(options, limit)));
                    });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return in_place(
        {OpType::REDUCE, options.timeout, options.reduceOp, options.rootRank}, tensors,
        [&](Tensors& own, Milliseconds limit) { return LOCKSTEP_INNER(reduce(own, with(options, limit))); });
  }
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    auto all = joined(outputs);
    return around({OpType::ALLGATHER, options.timeout}, all, inputs,
                  [&](Tensors& out, Tensors& in, Milliseconds limit) {
                    auto lists = split_as(outputs, out);
                    return LOCKSTEP_INNER(allgather(lists, in, with(options, limit)));
                  });
  }
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    auto all = joined(outputs);
    return around({.type = OpType::ALLGATHER_COALESCED, .timeout = options.timeout, .lists = true}, all,
                  inputs, [&](Tensors& out, Tensors& in, Milliseconds limit) {
                    auto lists = split_as(outputs, out);
                    return LOCKSTEP_INNER(allgather_coalesced(lists, in, with(options, limit)));
                  });
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    return one_to_one({OpType::_ALLGATHER_BASE, options.timeout}, output, input,
                      [&](at::Tensor& out, at::Tensor& in, Milliseconds limit) {
                        return LOCKSTEP_RENAMED_INNER(_allgather_base, all_gather_single, out, in,
                                                      with(options, limit));
                      });
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return around({OpType::ALLGATHER_COALESCED, options.timeout}, outputs, inputs,
                  [&](Tensors& out, Tensors& in, Milliseconds limit) {
                    return LOCKSTEP_RENAMED_INNER(allgather_into_tensor_coalesced,
                                                  all_gather_single_coalesced, out, in, with(options, limit));
                  });
  }
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    auto all = joined(outputs);
    return around({OpType::GATHER, options.timeout, {}, options.rootRank}, all, inputs,
                  [&](Tensors& out, Tensors& in, Milliseconds limit) {
                    auto lists = split_as(outputs, out);
                    return LOCKSTEP_INNER(gather(lists, in, with(options, limit)));
                  });
  }
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    auto all = joined(inputs);
    return around({OpType::SCATTER, options.timeout, {}, options.rootRank}, outputs, all,
                  [&](Tensors& out, Tensors& in, Milliseconds limit) {
                    auto lists = split_as(inputs, in);
                    return LOCKSTEP_INNER(scatter(out, lists, with(options, limit)));
                  });
  }
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    auto all = joined(inputs);
    return around({OpType::REDUCE_SCATTER, options.timeout, options.reduceOp}, outputs, all,
                  [&](Tensors& out, Tensors& in, Milliseconds limit) {
                    auto lists = split_as(inputs, in);
                    return LOCKSTEP_INNER(reduce_scatter(out, lists, with(options, limit)));
                  });
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return one_to_one({OpType::_REDUCE_SCATTER_BASE, options.timeout, options.reduceOp}, output, input,
                      [&](at::Tensor& out, at::Tensor& in, Milliseconds limit) {
                        return LOCKSTEP_RENAMED_INNER(_reduce_scatter_base, reduce_scatter_single, out, in,
                                                      with(options, limit));
                      });
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return around({OpType::_REDUCE_SCATTER_BASE, options.timeout, options.reduceOp}, outputs, inputs,
                  [&](Tensors& out, Tensors& in, Milliseconds limit) {
                    return LOCKSTEP_RENAMED_INNER(reduce_scatter_tensor_coalesced,
                                                  reduce_scatter_single_coalesced, out, in,
                                                  with(options, limit));
                  });
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
                        std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& options) override {
    const BackendCall call{.type = OpType::ALLTOALL_BASE,
                           .timeout = options.timeout,
                           .output_rows = &output_rows,
                           .input_rows = &input_rows};
    return one_to_one(call, output, input, [&](at::Tensor& out, at::Tensor& in, Milliseconds limit) {
      return LOCKSTEP_RENAMED_INNER(alltoall_base, all_to_all_single, out, in, output_rows, input_rows,
                                    with(options, limit));
    });
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return around({OpType::ALLTOALL, options.timeout}, outputs, inputs,
                  [&](Tensors& out, Tensors& in, Milliseconds limit) {
                    return LOCKSTEP_INNER(alltoall(out, in, with(options, limit)));
                  });
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    Tensors none;
    return in_place({OpType::BARRIER, options.timeout}, none, [&](Tensors&, Milliseconds limit) {
      return LOCKSTEP_INNER(barrier(with(options, limit)));
    });
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) override {
    LOCKSTEP_INNER(monitoredBarrier(options, wait_for_all));
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    Tensors none;
    return around({.type = OpType::SEND, .root = to, .tag = tag}, none, tensors,
                  [&](Tensors&, Tensors& in, Milliseconds) { return LOCKSTEP_INNER(send(in, to, tag)); });
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return in_place({.type = OpType::RECV, .root = from, .tag = tag}, tensors,
                    [&](Tensors& out, Milliseconds) { return LOCKSTEP_INNER(recv(out, from, tag)); });
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return in_place({.type = OpType::RECVANYSOURCE, .tag = tag}, tensors,
                    [&](Tensors& out, Milliseconds) { return LOCKSTEP_INNER(recvAnysource(out, tag)); });
  }
#undef LOCKSTEP_INNER
#undef LOCKSTEP_RENAMED_INNER

  // NOLINTBEGIN(modernize-use-override): libtorch has these names since 2.13
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
    return _allgather_base(output, input, options);
  }
  WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options) {
    return allgather_into_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                const c10d::ReduceScatterOptions& options) {
    return _reduce_scatter_base(output, input, options);
  }
  WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) {
    return reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
                            std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& options) {
    return alltoall_base(output, input, output_rows, input_rows, options);
  }
  // NOLINTEND(modernize-use-override)

 protected:
  using OpType = c10d::OpType;
  /// Continues the call, with these tensors and this timeout instead of the caller's.
  using InnerCall = c10::function_ref<WorkPtr(Tensors& outputs, Tensors& inputs, Milliseconds timeout)>;

  /// `outputs` are written, or read and written; `inputs` are read. Lists of tensors are joined.
  virtual WorkPtr around(const BackendCall& call, Tensors& outputs, Tensors& inputs, InnerCall inner) = 0;

  const BackendPtr& inner() const {
    return inner_;
  }

 private:
  template <class Options>
  static Options with(Options options, Milliseconds timeout) {
    options.timeout = timeout;
    return options;
  }
  template <class Start>
  WorkPtr in_place(const BackendCall& call, Tensors& tensors, const Start& start) {
    Tensors none;
    return around(call, tensors, none,
                  [&](Tensors& out, Tensors&, Milliseconds limit) { return start(out, limit); });
  }
  template <class Start>
  WorkPtr one_to_one(const BackendCall& call, at::Tensor& output, at::Tensor& input, const Start& start) {
    Tensors outputs = {output}, inputs = {input};
    return around(call, outputs, inputs,
                  [&](Tensors& out, Tensors& in, Milliseconds limit) { return start(out[0], in[0], limit); });
  }

  BackendPtr inner_;
};

using InterceptedBackend = Intercepted<c10d::Backend>;

}  // namespace lockstep::comm
