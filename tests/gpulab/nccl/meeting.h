#pragma once
// How the ranks of a communicator find each other, and what is refused then.
#include "nccl/comm.h"

namespace lab::nccl {

/// Of the calling process on its communicator's device.
Facts own_facts(const Comm& comm);
/// Takes the rank's seat and waits for all others. On a host's thread; ends early when aborted.
ncclResult_t meet(Comm& comm);
/// The ranks of one process, which all have their seats already.
ncclResult_t check_all(Comm& comm);

}  // namespace lab::nccl
