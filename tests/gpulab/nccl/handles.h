#pragma once
// What the caller holds of a communicator. One that has been destroyed is known as such, and not touched.
#include "nccl/comm.h"

namespace lab::nccl {

ncclComm_t handle_of(const CommPtr& comm);
/// Null for what is none, or none any more.
CommPtr find(ncclComm_t handle);
void forget(ncclComm_t handle);
/// With its error kept for ncclGetLastError.
ncclResult_t refuse_handle(const char* call);

}  // namespace lab::nccl
