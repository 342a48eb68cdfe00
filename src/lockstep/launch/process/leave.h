#pragma once
// How a failed rank exits: one rank reports the error for the job, and no rank is left waiting.

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/descriptor.h"
#include "lockstep/launch/identify.h"

namespace lockstep::launch {

/// Notes that this rank has failed. If several ranks fail of one cause, the first caller reports it. For
/// errors that take a while to reach leave_failed().
void claim_error_report();
/// Whether another thread has called it, and so is about to report why the process ends.
bool another_thread_is_exiting();

/// Prints `text` once for the job and ends it. If all ranks failed together, it finalizes MPI and returns the
/// exit status. If others still work, it ends them (MPI_Abort) and does not return. Call it after the Runtime
/// is destroyed: during an exception that leaves MPI initialized for this call.
int leave_failed(int status, const std::string& text);

/// At exit this process flushes its output and ends without running destructors. Exit handlers that are
/// registered later run before that.
void skip_destructors_at_exit();

/// Prints `text` unless another rank of this host has done so. The process must exit right after.
void print_once_per_host(const std::string& text);

/// A rank's number and how many there are.
struct RankAndWorld {
  int rank = 0;
  int world = 1;
  bool one_host = false;  // all ranks are known to be on this host
};

/// From any launcher's valid variables, without errors, because the environment may be wrong. A rank above 0
/// overrides a 0 that was exported for all.
RankAndWorld rank_by_environment(const Environment& environment);

/// The first of the ranks that one launcher started on this host reports for all of them. Without a
/// launcher's job variable, or with separate log files, each rank reports.
class ErrorReporter {
 public:
  explicit ErrorReporter(const Environment& environment);
  bool is_ours() const { return ours_; }
  /// Whether other ranks may wait for this one.
  bool is_shared() const { return !name_.empty(); }
  /// Whether another rank was the reporter and has exited; waits at most `patience` for that.
  bool has_reported(std::chrono::milliseconds patience) const;

 private:
  std::string name_;  // of an abstract socket, which ends with its process; empty = each rank reports
  base::Descriptor claim_;
  bool ours_ = true;
};

/// From now on an uncaught exception prints its text and exits with status 1 instead of SIGABRT. A terminate
/// handler of the program stays. `more` is appended to the text.
void exit_on_uncaught_errors(std::string (*more)() = nullptr);

/// Tells the other ranks that an error ends this process, as before such an end.
void announce_end(const std::string& what);

/// Calls `call` with the first line of such an error before the process ends, as long as the returned object
/// lives. An error that it returns is printed instead.
[[nodiscard]] std::shared_ptr<void> on_uncaught_error(
    std::function<std::exception_ptr(const std::string& what)> call);

}  // namespace lockstep::launch
