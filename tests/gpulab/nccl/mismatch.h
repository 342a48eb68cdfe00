#pragma once
// Ranks that do not do the same: on GPUs a hang or wrong numbers, here said by name, and then a hang.
#include "nccl/comm.h"

namespace lab::nccl {

/// Says it, and never returns unless the communicator is aborted. LAB_NCCL_MISMATCH=error makes it its error
/// as well.
[[noreturn]] void hang_over(Comm& comm, const std::string& mismatch);

}  // namespace lab::nccl
