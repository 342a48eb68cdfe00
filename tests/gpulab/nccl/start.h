#pragma once
// How a communicator begins: its handle, and the meeting of its ranks, in the background where it is
// nonblocking.
#include <nccl.h>

#include <functional>

#include "nccl/comm.h"

namespace lab::nccl {

/// Whether a communicator of this configuration waits in its calls. Refuses one that was not initialized.
ncclResult_t read_config(const ncclConfig_t* config, bool otherwise, bool& blocking);

/// A communicator of the calling thread's device.
CommPtr new_comm(bool blocking);
/// Refuses what NCCL refuses, and more ranks than a board has seats.
ncclResult_t check_size(int size, int rank);

/// Gives the handle, and lets the ranks meet: now, or with the group's others, or in the background. Inside a
/// group.
ncclResult_t begin(const CommPtr& comm, ncclComm_t* handle, std::function<ncclResult_t()> meeting);

}  // namespace lab::nccl
