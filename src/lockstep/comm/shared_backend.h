#pragma once
// The backend "shared": gloo's sums to the same bits, made in the memory that the ranks of a node share.

#include "lockstep/comm/node/inline_backend.h"

namespace lockstep::comm {

/// Over gloo's lines goes what is seldom: messages between two ranks, gather, scatter, all-to-all and sparse
/// sums. Collective over the group, whose ranks are all on one node. Without shared memory between them it is
/// `gloo` alone, which a warning says.
c10::intrusive_ptr<c10d::Backend> make_shared_backend(c10::intrusive_ptr<c10d::Backend> gloo,
                                                      std::shared_ptr<RollCall> roll,
                                                      std::chrono::milliseconds join_timeout,
                                                      std::chrono::milliseconds timeout);

}  // namespace lockstep::comm
