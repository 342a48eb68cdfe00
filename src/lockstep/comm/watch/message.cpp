#include "lockstep/comm/watch/message.h"

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

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

void require_rank(int64_t rank, int world, const char* what) {
  if (rank >= 0 && rank < world) return;
  throw InputError(format("rank {} cannot be {}: the group has {} ranks", rank, what, world), "",
                   format("give a rank from 0 to {}", world - 1));
}

Collective message_with(c10d::OpType type, int peer, std::chrono::milliseconds timeout) {
  const char* what = type == c10d::OpType::SEND ? "has not received it" : "has not sent one";
  return {op_name(type), 0, timeout, peer,
          peer < 0 ? "nobody has sent one" : format("rank {} {}", peer, what)};
}

}  // namespace lockstep::comm
