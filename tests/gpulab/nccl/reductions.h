#pragma once
// What a reduction's number stands for.
#include "nccl/collectives.h"

namespace lab::nccl {

ncclResult_t resolve(Comm& comm, ncclRedOp_t op, ncclDataType_t type, Reduction& reduction);

}  // namespace lab::nccl
