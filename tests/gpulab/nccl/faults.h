#pragma once
// What LAB_NCCL_FAULT asks to go wrong.
#include "nccl/settings.h"

namespace lab::nccl {

/// Counts this process' collectives, of all communicators, from 1 on.
long next_collective();
bool strikes(Fault fault, long collective);

}  // namespace lab::nccl
