#pragma once
// The one place where an exception becomes text, once for the job, and an exit status; nobody is left
// waiting.

#include <functional>

namespace lockstep::cli {

/// Runs the program's body and returns what the process leaves with.
int guarded(const std::function<int()>& body);

}  // namespace lockstep::cli
