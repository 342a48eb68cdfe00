#include "lockstep/comm/watch/op_names.h"

#include <map>

namespace lockstep::comm {

std::string op_name(c10d::OpType type) {
  using c10d::OpType;
  static const std::map<OpType, const char*> kNames = {
      {OpType::BROADCAST, "broadcast"},
      {OpType::ALLREDUCE, "all-reduce"},
      {OpType::_ALLREDUCE_SPARSE, "sparse all-reduce"},
      {OpType::ALLREDUCE_COALESCED, "all-reduce of several tensors"},
      {OpType::REDUCE, "reduce"},
      {OpType::ALLGATHER, "all-gather"},
      {OpType::_ALLGATHER_BASE, "all-gather"},
      {OpType::ALLGATHER_COALESCED, "all-gather of several tensors"},
      {OpType::GATHER, "gather"},
      {OpType::SCATTER, "scatter"},
      {OpType::REDUCE_SCATTER, "reduce-scatter"},
      {OpType::_REDUCE_SCATTER_BASE, "reduce-scatter"},
      {OpType::ALLTOALL, "all-to-all"},
      {OpType::ALLTOALL_BASE, "all-to-all"},
      {OpType::SEND, "send"},
      {OpType::RECV, "receive"},
      {OpType::RECVANYSOURCE, "receive from anyone"},
      {OpType::BARRIER, "barrier"},
  };
  const auto found = kNames.find(type);
  return found == kNames.end() ? c10d::opTypeToString(type) : found->second;
}

}  // namespace lockstep::comm
