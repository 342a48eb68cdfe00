#pragma once
// The one place where an exception becomes text, once for the job, and an exit status; no rank waits on.

#include <functional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::cli {

/// The command line was wrong: the same on every rank, so rank 0 speaks for all.
class UsageError : public InputError {
 public:
  using InputError::InputError;
};

/// launch::exit_on_uncaught_errors(), with the trace where one is asked for.
void exit_on_uncaught_errors();

/// Runs the program's body and returns what the process leaves with. The body sets `alike` to true while
/// wrong input would be met by every rank in the same way, as it is by commands that join no job.
int guarded(const std::function<int(bool& alike)>& body);

/// The status, once all that was printed is written; an error where it cannot be.
int flushed(int status);

/// With LOCKSTEP_TRACE=1, a line break and the stack of this thread's last throw; otherwise empty.
std::string last_trace();

}  // namespace lockstep::cli
