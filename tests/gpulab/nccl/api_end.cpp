// How communicators end, and what they say of themselves.
#include <unistd.h>

#include <thread>

#include "lab.h"
#include "nccl/api.h"
#include "nccl/errors.h"
#include "nccl/handles.h"
#include "nccl/settings.h"

namespace lab::nccl {
namespace {

template <class Use>
ncclResult_t with(ncclComm_t handle, const char* call, const Use& use) {
  const auto comm = find(handle);
  if (!comm) return refuse_handle(call);
  use(comm);
  return ncclSuccess;
}

void leave(Comm& comm) {
  if (comm.board) comm.own().left = 1;
}

ncclResult_t finalize(const CommPtr& comm) {
  if (comm->blocking) {
    comm->turns.wait_empty();
    return ncclSuccess;
  }
  comm->progress = ncclInProgress;
  std::thread([comm] {
    comm->turns.wait_empty();
    comm->progress = ncclSuccess;
  }).detach();
  return ncclInProgress;
}

[[noreturn]] void hang() {
  say("NCCL: ncclCommAbort hangs, as asked");
  for (;;) ::pause();
}

}  // namespace
}  // namespace lab::nccl

using lab::nccl::CommPtr;

NCCL_CALL ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const auto comm = lab::nccl::find(handle);
  if (!comm) return lab::nccl::refuse_handle("ncclCommFinalize");
  if (comm->revoked) return lab::nccl::refuse(ncclInvalidUsage, "ncclCommFinalize of a revoked communicator");
  return lab::nccl::finalize(comm);
}

NCCL_CALL ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (!handle) return ncclSuccess;
  return lab::nccl::with(handle, "ncclCommDestroy", [&](const CommPtr& comm) {
    comm->turns.wait_empty();
    lab::nccl::leave(*comm);
    lab::nccl::forget(handle);
  });
}

NCCL_CALL ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (!handle) return ncclSuccess;
  return lab::nccl::with(handle, "ncclCommAbort", [&](const CommPtr& comm) {
    if (lab::nccl::settings().abort_hangs) lab::nccl::hang();
    comm->abort();
    comm->turns.wait_quiet();
    lab::nccl::leave(*comm);
    lab::nccl::forget(handle);
  });
}

NCCL_CALL ncclResult_t ncclCommRevoke(ncclComm_t handle, int) {
  return lab::nccl::with(handle, "ncclCommRevoke", [](const CommPtr& comm) {
    comm->revoke();
    comm->turns.wait_quiet();
  });
}

NCCL_CALL ncclResult_t ncclCommSuspend(ncclComm_t handle, int) {
  return lab::nccl::with(handle, "ncclCommSuspend", [](const CommPtr& comm) {
    comm->turns.wait_empty();
    comm->suspended = true;
  });
}
NCCL_CALL ncclResult_t ncclCommResume(ncclComm_t handle) {
  return lab::nccl::with(handle, "ncclCommResume", [](const CommPtr& comm) { comm->suspended = false; });
}

NCCL_CALL ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  return lab::nccl::with(handle, "ncclCommGetAsyncError",
                         [&](const CommPtr& comm) { *error = comm->state(); });
}
NCCL_CALL ncclResult_t ncclCommCount(const ncclComm_t handle, int* count) {
  return lab::nccl::with(handle, "ncclCommCount", [&](const CommPtr& comm) { *count = comm->size; });
}
NCCL_CALL ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  return lab::nccl::with(handle, "ncclCommUserRank", [&](const CommPtr& comm) { *rank = comm->rank; });
}
NCCL_CALL ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int* device) {
  return lab::nccl::with(handle, "ncclCommCuDevice", [&](const CommPtr& comm) { *device = comm->device; });
}
