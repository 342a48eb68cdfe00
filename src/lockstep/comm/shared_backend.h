#pragma once
// The backend "shared": gloo's sums to the same bits, made in the memory that the ranks of a node share.

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/comm/watch/peer_monitor.h"

namespace lockstep::comm {

/// On one node all collectives but sums of sparse tensors, which go over gloo's connections as messages do;
/// over several nodes, short sums. Collective over the group. It is `gloo` alone where the ranks of a node
/// share no memory, which a warning says, and where shared memory would save no message.
c10::intrusive_ptr<c10d::Backend> make_shared_backend(c10::intrusive_ptr<c10d::Backend> gloo,
                                                      std::shared_ptr<PeerMonitor> monitor,
                                                      std::chrono::milliseconds join_timeout,
                                                      std::chrono::milliseconds timeout);

/// Moves what the tensors' storages hold, and with them all views, where the group's backend sums without
/// copies: shared and mpi, on a node with several ranks and room in /dev/shm. Elsewhere nothing changes but
/// the time that a sum takes. Collective, with tensors alike on all ranks. An all-reduce takes the quick way
/// when all ranks give the same part of such a tensor, to the same bits as any other.
void share(const ProcessGroup& group, const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::comm
