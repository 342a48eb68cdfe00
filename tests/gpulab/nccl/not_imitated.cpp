// What there is no imitation of: one-sided communication, and communication that kernels begin themselves.
#include "lab.h"
#include "nccl/api.h"
#include "nccl/errors.h"

// defined under their names by the assembler, whatever their arguments are
#define NOT_IMITATED(name)                                                         \
  NCCL_CALL ncclResult_t lab_not_imitated_##name() __asm__(#name);                 \
  NCCL_CALL ncclResult_t lab_not_imitated_##name() {                               \
    lab::say("not imitated: %s", #name);                                           \
    return lab::nccl::refuse(ncclInvalidUsage, "not imitated by the lab: " #name); \
  }

NOT_IMITATED(ncclPutSignal)
NOT_IMITATED(ncclSignal)
NOT_IMITATED(ncclWaitSignal)
NOT_IMITATED(ncclGroupSimulateEnd)
NOT_IMITATED(ncclDevCommCreate)
NOT_IMITATED(ncclDevCommDestroy)
NOT_IMITATED(ncclGetLsaDevicePointer)
NOT_IMITATED(ncclGetLsaMultimemDevicePointer)
NOT_IMITATED(ncclGetMultimemDevicePointer)
NOT_IMITATED(ncclGetPeerDevicePointer)
NOT_IMITATED(ncclCommQueryProperties)
