#pragma once
// The backend "shared": sums with gloo's bits, made in the shared memory of each node.

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/comm/watch/peer_monitor.h"

namespace lockstep::comm {

/// On one node it runs all collectives except sums of sparse tensors; over several nodes only short sums.
/// `gloo` runs the rest, and all messages. Collective over the group. Returns `gloo` if the ranks of a node
/// cannot share memory, with a warning, or if shared memory would save no message.
c10::intrusive_ptr<c10d::Backend> make_shared_backend(c10::intrusive_ptr<c10d::Backend> gloo,
                                                      std::shared_ptr<PeerMonitor> monitor,
                                                      std::chrono::milliseconds join_timeout,
                                                      std::chrono::milliseconds timeout);

/// Collective, with equal tensors on all ranks. Moves the tensors' storages, and with them all views, into
/// shared memory, so that an all-reduce of the same part on all ranks sums without copies, to the same bits.
/// Only shared and mpi do this, on a node with several ranks and room in /dev/shm; otherwise nothing changes.
void share(const ProcessGroup& group, const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::comm
