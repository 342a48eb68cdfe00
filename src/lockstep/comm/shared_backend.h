#pragma once
// The backend "shared": gloo's sums to the same bits, made in the memory that the ranks of a node share.

#include "lockstep/comm/node/transport_backend.h"

namespace lockstep::comm {

/// On one node all collectives but sums of sparse tensors, which go over gloo's lines as messages do; over
/// several, sums (nodes_backend.h). Collective over the group. Without shared memory between a node's ranks
/// it is `gloo` alone, which a warning says, and where it could save no message.
c10::intrusive_ptr<c10d::Backend> make_shared_backend(c10::intrusive_ptr<c10d::Backend> gloo,
                                                      std::shared_ptr<RollCall> roll,
                                                      std::chrono::milliseconds join_timeout,
                                                      std::chrono::milliseconds timeout);

}  // namespace lockstep::comm
