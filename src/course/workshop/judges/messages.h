#pragma once
// Programs whose ranks are threads that send each other messages: what is to be thought of messages that
// never meet.

#include <string>
#include <vector>

#include "course/workshop/judge.h"

namespace lockstep::workshop {

/// The program, once: its threads are the ranks, and its error speaks of all of them. `label`: what the
/// learner reads while it runs; `named`: how the error begins.
Run run_threads_of(Attempt& attempt, const std::vector<std::string>& args, const std::string& label,
                   const std::string& named);

}  // namespace lockstep::workshop
