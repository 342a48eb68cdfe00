#include "lockstep/comm/staged_backend.h"

#include <ATen/ATen.h>

#include "lockstep/comm/watch/watched_work.h"

namespace lockstep::comm {
namespace {

using c10d::OpType;
using WorkPtr = StagedBackend::WorkPtr;
using Tensors = StagedBackend::Tensors;
using TensorLists = StagedBackend::TensorLists;

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const auto& tensor : tensors)
    copies.push_back(tensor.cpu());  // waits for what is under way on the GPU
  return copies;
}

Tensors in_one(const TensorLists& lists) {
  Tensors all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// As the lists were, of which `all` is made.
TensorLists apart(const Tensors& all, const TensorLists& like) {
  TensorLists lists;
  auto next = all.begin();
  for (const auto& list : like) {
    lists.emplace_back(next, next + static_cast<std::ptrdiff_t>(list.size()));
    next += static_cast<std::ptrdiff_t>(list.size());
  }
  return lists;
}

}  // namespace

StagedBackend::StagedBackend(c10::intrusive_ptr<c10d::Backend> base)
    : Backend(base->getRank(), base->getSize()), base_(std::move(base)) {}

WorkPtr StagedBackend::run(OpType type, const Tensors& results, const Tensors& inputs,
                           const std::function<WorkPtr(Tensors&, Tensors&)>& call) {
  const at::NoGradGuard no_grad;
  std::exception_ptr error;
  try {
    auto made = copies_of(results), read = copies_of(inputs);
    call(made, read)->wait();
    for (size_t i = 0; i < results.size(); ++i) results[i].copy_(made[i]);
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  return c10::make_intrusive<FinishedWork>(getRank(), type, ++number_, results, error);
}

WorkPtr StagedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return run(OpType::BROADCAST, tensors, {},
             [&](Tensors& copies, Tensors&) { return base_->broadcast(copies, options); });
}

WorkPtr StagedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return run(OpType::ALLREDUCE, tensors, {},
             [&](Tensors& copies, Tensors&) { return base_->allreduce(copies, options); });
}

WorkPtr StagedBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return run(OpType::ALLREDUCE_COALESCED, tensors, {},
             [&](Tensors& copies, Tensors&) { return base_->allreduce_coalesced(copies, options); });
}

WorkPtr StagedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return run(OpType::REDUCE, tensors, {},
             [&](Tensors& copies, Tensors&) { return base_->reduce(copies, options); });
}

WorkPtr StagedBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                 const c10d::AllgatherOptions& options) {
  return run(OpType::ALLGATHER, in_one(outputs), inputs, [&](Tensors& made, Tensors& read) {
    auto lists = apart(made, outputs);
    return base_->allgather(lists, read, options);
  });
}

WorkPtr StagedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                       const c10d::AllgatherOptions& options) {
  return run(OpType::_ALLGATHER_BASE, {output}, {input},
             [&](Tensors& made, Tensors& read) { return base_->_allgather_base(made[0], read[0], options); });
}

WorkPtr StagedBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                       const c10d::AllgatherOptions& options) {
  return run(OpType::ALLGATHER_COALESCED, outputs, inputs, [&](Tensors& made, Tensors& read) {
    return base_->allgather_into_tensor_coalesced(made, read, options);
  });
}

WorkPtr StagedBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return run(OpType::GATHER, in_one(outputs), inputs, [&](Tensors& made, Tensors& read) {
    auto lists = apart(made, outputs);
    return base_->gather(lists, read, options);
  });
}

WorkPtr StagedBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  return run(OpType::SCATTER, outputs, in_one(inputs), [&](Tensors& made, Tensors& read) {
    auto lists = apart(read, inputs);
    return base_->scatter(made, lists, options);
  });
}

WorkPtr StagedBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                      const c10d::ReduceScatterOptions& options) {
  return run(OpType::REDUCE_SCATTER, outputs, in_one(inputs), [&](Tensors& made, Tensors& read) {
    auto lists = apart(read, inputs);
    return base_->reduce_scatter(made, lists, options);
  });
}

WorkPtr StagedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::ReduceScatterOptions& options) {
  return run(OpType::_REDUCE_SCATTER_BASE, {output}, {input}, [&](Tensors& made, Tensors& read) {
    return base_->_reduce_scatter_base(made[0], read[0], options);
  });
}

WorkPtr StagedBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  return run(OpType::_REDUCE_SCATTER_BASE, outputs, inputs, [&](Tensors& made, Tensors& read) {
    return base_->reduce_scatter_tensor_coalesced(made, read, options);
  });
}

WorkPtr StagedBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return run(OpType::ALLTOALL, outputs, inputs,
             [&](Tensors& made, Tensors& read) { return base_->alltoall(made, read, options); });
}

WorkPtr StagedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                     std::vector<int64_t>& output_counts, std::vector<int64_t>& input_counts,
                                     const c10d::AllToAllOptions& options) {
  return run(OpType::ALLTOALL_BASE, {output}, {input}, [&](Tensors& made, Tensors& read) {
    return base_->alltoall_base(made[0], read[0], output_counts, input_counts, options);
  });
}

WorkPtr StagedBackend::barrier(const c10d::BarrierOptions& options) {
  return base_->barrier(options);
}

WorkPtr StagedBackend::send(Tensors& tensors, int to, int tag) {
  return run(OpType::SEND, {}, tensors, [&](Tensors&, Tensors& read) { return base_->send(read, to, tag); });
}

WorkPtr StagedBackend::recv(Tensors& tensors, int from, int tag) {
  return run(OpType::RECV, tensors, {},
             [&](Tensors& made, Tensors&) { return base_->recv(made, from, tag); });
}

}  // namespace lockstep::comm
