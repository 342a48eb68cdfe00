#pragma once
// How a failed rank leaves: one reporter for the job, no rank left waiting.

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/descriptor.h"
#include "lockstep/launch/identify.h"

namespace lockstep::launch {

/// This rank has failed, and ends soon: where several fail of one cause, whoever called this first, here or
/// by leave_failed(), speaks. For errors that take a while to travel up, and close what others look at.
void claim_error_report();
/// Whether another thread of this process has called it, and so is about to say why the process ends.
bool another_thread_leaves();

/// Says `text` once for the job and ends it. Where all ranks failed together it finalises MPI and returns the
/// status to leave with; where others still work it takes them down (MPI_Abort) and does not return.
/// Call it when the Runtime is gone: an exception that flew past it has left MPI up for this.
int leave_failed(int status, const std::string& text);

/// At its exit this process flushes what it has printed and is gone: nothing of the libraries is taken down.
/// What they leave for the exit later than this call runs before.
void leave_to_the_kernel();

/// Says `text` unless another rank of this host has done so; for those who leave right after.
void say_for_job(const std::string& text);

// Which rank of a job reports an error that several meet, also where no rank could join.

/// A rank's number and how many there are.
struct RankOf {
  int rank = 0;
  int world = 1;
  bool one_host = false;  // all ranks are known to be on this one
};

/// By whatever launcher's variables make sense, and never an error: the environment may be what is wrong.
/// Where several make sense, a rank above 0 is believed before a 0 that was exported for all.
RankOf rank_by_environment(const Environment& environment);

/// The right to speak for the ranks that one launcher started on this host and that are read in one place:
/// the first to ask has it, until it is gone. Without a launcher's word, or with log files apart, each has
/// its own.
class ErrorReporter {
 public:
  explicit ErrorReporter(const Environment& environment);
  bool is_ours() const { return ours_; }
  /// Whether others may look for it.
  bool is_shared() const { return !name_.empty(); }
  /// Whether somebody else had it and has gone since; waits for that no longer than asked.
  bool has_reported(std::chrono::milliseconds patience) const;

 private:
  std::string name_;  // of a socket without a file, which ends with its process; empty = nobody to agree with
  base::Descriptor claim_;
  bool ours_ = true;
};

// What no catch sees, such as an error in a thread of gloo's: said in words, and told to the other ranks.

/// From now on an exception that nobody catches ends the process with its text and status 1, not with
/// SIGABRT, and where memory ends there is some left to say so. Handlers that the program has set stay.
/// `more` is put behind the text.
void never_abort(std::string (*more)() = nullptr);

/// Calls `tell` with the first line of such an error before the process ends, for as long as what is returned
/// lives. An error that it returns is said in the place of the other.
[[nodiscard]] std::shared_ptr<void> before_the_end(
    std::function<std::exception_ptr(const std::string& what)> tell);

}  // namespace lockstep::launch
