#pragma once
// A message between two ranks: what both backends check before it and say when it does not come.

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <string>

#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {

/// InputError where `rank` is none of the group's `world`; `what` is what it was to be: "the root of a
/// broadcast".
void require_rank(int64_t rank, int world, const char* what);

/// The message as an error speaks of it; peer -1: from anyone.
Collective message_with(c10d::OpType type, int peer, std::chrono::milliseconds timeout);

// What a person calls each collective.

std::string op_name(c10d::OpType type);

}  // namespace lockstep::comm
