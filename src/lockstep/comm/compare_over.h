#pragma once
// TORCH_DISTRIBUTED_DEBUG=DETAIL for a backend over another: calls are compared over the other's all-gather.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {

/// Collective, where the ranks compare calls: throws where another rank's differs from `own`.
void compare_over(c10d::Backend& base, RollCall& roll, const Collective& collective, const Call& own);

/// What a call on a group that is dead ends with.
std::exception_ptr death_of(RollCall& roll);

}  // namespace lockstep::comm
