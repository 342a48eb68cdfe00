#include "lockstep/comm/node/forwarding_backend.h"

namespace lockstep::comm {

using WorkPtr = ForwardingBackend::WorkPtr;

WorkPtr ForwardingBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  forwarded_ = true;
  return base_->allreduce(tensors, options);
}
WorkPtr ForwardingBackend::allreduce_coalesced(Tensors& tensors,
                                               const c10d::AllreduceCoalescedOptions& options) {
  forwarded_ = true;
  return base_->allreduce_coalesced(tensors, options);
}
WorkPtr ForwardingBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  forwarded_ = true;
  return base_->broadcast(tensors, options);
}
WorkPtr ForwardingBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  forwarded_ = true;
  return base_->allreduce_sparse(tensors, options);
}
WorkPtr ForwardingBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  forwarded_ = true;
  return base_->reduce(tensors, options);
}
WorkPtr ForwardingBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
  forwarded_ = true;
  return base_->allgather(outputs, inputs, options);
}
WorkPtr ForwardingBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& options) {
  forwarded_ = true;
  return base_->_allgather_base(output, input, options);
}
WorkPtr ForwardingBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& options) {
  forwarded_ = true;
  return base_->allgather_coalesced(outputs, inputs, options);
}
WorkPtr ForwardingBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
  forwarded_ = true;
  return base_->allgather_into_tensor_coalesced(outputs, inputs, options);
}
WorkPtr ForwardingBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  forwarded_ = true;
  return base_->gather(outputs, inputs, options);
}
WorkPtr ForwardingBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                   const c10d::ScatterOptions& options) {
  forwarded_ = true;
  return base_->scatter(outputs, inputs, options);
}
WorkPtr ForwardingBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                          const c10d::ReduceScatterOptions& options) {
  forwarded_ = true;
  return base_->reduce_scatter(outputs, inputs, options);
}
WorkPtr ForwardingBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& options) {
  forwarded_ = true;
  return base_->_reduce_scatter_base(output, input, options);
}
WorkPtr ForwardingBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::ReduceScatterOptions& options) {
  forwarded_ = true;
  return base_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
}
WorkPtr ForwardingBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                         std::vector<int64_t>& output_counts,
                                         std::vector<int64_t>& input_counts,
                                         const c10d::AllToAllOptions& options) {
  forwarded_ = true;
  return base_->alltoall_base(output, input, output_counts, input_counts, options);
}
WorkPtr ForwardingBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  forwarded_ = true;
  return base_->alltoall(outputs, inputs, options);
}
WorkPtr ForwardingBackend::barrier(const c10d::BarrierOptions& options) {
  return base_->barrier(options);
}
WorkPtr ForwardingBackend::send(Tensors& tensors, int to, int tag) {
  return base_->send(tensors, to, tag);
}
WorkPtr ForwardingBackend::recv(Tensors& tensors, int from, int tag) {
  return base_->recv(tensors, from, tag);
}
WorkPtr ForwardingBackend::recvAnysource(Tensors& tensors, int tag) {
  return base_->recvAnysource(tensors, tag);
}

void ForwardingBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) {
  base_->monitoredBarrier(options, wait_for_all);
}

}  // namespace lockstep::comm
