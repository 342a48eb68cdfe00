#include "lockstep/comm/shm/intercepted_backend.h"

#include "lockstep/comm/watch/calls.h"

namespace lockstep::comm {

using Tensors = std::vector<at::Tensor>;

const Tensors& tensors_alike(const BackendCall& call, const Tensors& outputs, const Tensors& inputs) {
  using c10d::OpType;
  static const Tensors none;
  switch (call.type) {
    case OpType::ALLGATHER:
    case OpType::_ALLGATHER_BASE:
    case OpType::ALLGATHER_COALESCED:
    case OpType::GATHER:
      return inputs;
    case OpType::ALLTOALL:
    case OpType::ALLTOALL_BASE:
      return none;
    default:
      return outputs;
  }
}

std::string details_of(const BackendCall& call) {
  std::string details;
  if (call.reduction) details += of_sum(*call.reduction);
  if (call.root >= 0) details += of_root(call.root);
  return details;
}

Tensors joined(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::vector<Tensors> split_as(const std::vector<Tensors>& like, const Tensors& all) {
  std::vector<Tensors> lists;
  auto next = all.begin();
  for (const auto& list : like) {
    const auto end = next + static_cast<std::ptrdiff_t>(list.size());
    lists.emplace_back(next, end);
    next = end;
  }
  return lists;
}

}  // namespace lockstep::comm
