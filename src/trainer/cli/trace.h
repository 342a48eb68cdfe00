#pragma once
// LOCKSTEP_TRACE=1: where the last exception was thrown, as a stack of function names.

#include <string>

namespace lockstep::cli {

bool tracing();

/// The stack of this thread's last throw; empty unless tracing() was on when it happened.
std::string last_trace();

}  // namespace lockstep::cli
