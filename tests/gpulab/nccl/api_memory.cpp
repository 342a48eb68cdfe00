// Memory that NCCL gives or is told of. To know a buffer beforehand makes the real one faster, and changes
// nothing here.
#include <cuda_runtime_api.h>

#include "nccl/api.h"
#include "nccl/errors.h"
#include "nccl/handles.h"

namespace {

ncclResult_t known(ncclComm_t comm, const char* call) {
  return lab::nccl::find(comm) ? ncclSuccess : lab::nccl::refuse_handle(call);
}

}  // namespace

NCCL_CALL ncclResult_t ncclMemAlloc(void** pointer, size_t bytes) {
  return cudaMalloc(pointer, bytes) == cudaSuccess
             ? ncclSuccess
             : lab::nccl::refuse(ncclUnhandledCudaError, "ncclMemAlloc: out of memory");
}
NCCL_CALL ncclResult_t ncclMemFree(void* pointer) {
  return cudaFree(pointer) == cudaSuccess
             ? ncclSuccess
             : lab::nccl::refuse(ncclUnhandledCudaError, "ncclMemFree: invalid pointer");
}

NCCL_CALL ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, size_t, void** handle) {
  *handle = data;
  return known(comm, "ncclCommRegister");
}
NCCL_CALL ncclResult_t ncclCommDeregister(const ncclComm_t comm, void*) {
  return known(comm, "ncclCommDeregister");
}

NCCL_CALL ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, size_t, ncclWindow_t* window,
                                              int) {
  *window = reinterpret_cast<ncclWindow_t>(data);
  return known(comm, "ncclCommWindowRegister");
}
NCCL_CALL ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t) {
  return known(comm, "ncclCommWindowDeregister");
}
NCCL_CALL ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** data) {
  *data = reinterpret_cast<void*>(window);
  return known(comm, "ncclWinGetUserPtr");
}

// Since NCCL 2.30, whose header has an enumeration for `stat`: by its name alone, so that older headers do.
NCCL_CALL ncclResult_t lab_mem_stats(ncclComm_t comm, int stat, uint64_t* value) __asm__("ncclCommMemStats");
NCCL_CALL ncclResult_t lab_mem_stats(ncclComm_t comm, int stat, uint64_t* value) {
  constexpr int kGpuMemSuspended = 1;
  const auto found = lab::nccl::find(comm);
  if (!found) return lab::nccl::refuse_handle("ncclCommMemStats");
  *value = stat == kGpuMemSuspended && found->suspended ? 1 : 0;  // it takes no memory of a GPU
  return ncclSuccess;
}
