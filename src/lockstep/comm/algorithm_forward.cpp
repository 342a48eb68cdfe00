// What the base does.
#include "lockstep/comm/algorithm_backend.h"

namespace lockstep::comm {

using WorkPtr = AlgorithmBackend::WorkPtr;

WorkPtr AlgorithmBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return base_->broadcast(tensors, options);
}
WorkPtr AlgorithmBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return base_->allreduce_sparse(tensors, options);
}
WorkPtr AlgorithmBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return base_->reduce(tensors, options);
}
WorkPtr AlgorithmBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  return base_->allgather(outputs, inputs, options);
}
WorkPtr AlgorithmBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  return base_->_allgather_base(output, input, options);
}
WorkPtr AlgorithmBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  return base_->allgather_coalesced(outputs, inputs, options);
}
WorkPtr AlgorithmBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  return base_->allgather_into_tensor_coalesced(outputs, inputs, options);
}
WorkPtr AlgorithmBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return base_->gather(outputs, inputs, options);
}
WorkPtr AlgorithmBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                  const c10d::ScatterOptions& options) {
  return base_->scatter(outputs, inputs, options);
}
WorkPtr AlgorithmBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  return base_->reduce_scatter(outputs, inputs, options);
}
WorkPtr AlgorithmBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  return base_->_reduce_scatter_base(output, input, options);
}
WorkPtr AlgorithmBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& options) {
  return base_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
}
WorkPtr AlgorithmBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_counts,
                                        std::vector<int64_t>& input_counts,
                                        const c10d::AllToAllOptions& options) {
  return base_->alltoall_base(output, input, output_counts, input_counts, options);
}
WorkPtr AlgorithmBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return base_->alltoall(outputs, inputs, options);
}
WorkPtr AlgorithmBackend::barrier(const c10d::BarrierOptions& options) {
  return base_->barrier(options);
}
WorkPtr AlgorithmBackend::send(Tensors& tensors, int to, int tag) {
  return base_->send(tensors, to, tag);
}
WorkPtr AlgorithmBackend::recv(Tensors& tensors, int from, int tag) {
  return base_->recv(tensors, from, tag);
}
WorkPtr AlgorithmBackend::recvAnysource(Tensors& tensors, int tag) {
  return base_->recvAnysource(tensors, tag);
}

}  // namespace lockstep::comm
