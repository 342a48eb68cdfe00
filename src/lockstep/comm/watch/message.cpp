#include "lockstep/comm/watch/message.h"

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/watch/op_names.h"

namespace lockstep::comm {

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
