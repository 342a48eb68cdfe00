#include "trainer/cli/failure.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>

#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/process/leave.h"
#include "lockstep/launch/process/report.h"

namespace lockstep::cli {
namespace {

// A launcher ends all when the first one leaves, and so would end rank 0 before it has spoken: on a busy
// machine it may start seconds after the others. Once it has left, the launcher ends this wait.
constexpr std::chrono::seconds kHearRankZero{5};

}  // namespace

void exit_on_uncaught_errors() {
  launch::exit_on_uncaught_errors(last_trace);
}

int guarded(const std::function<int(bool& alike)>& body) {
  // leave_failed() may end this process from inside, so nothing may be left to unwind when it is called
  ExitStatus status = kFailed;
  std::string text = "an exception that is not a std::exception was thrown";
  bool alike = false;
  try {
    return body(alike);
  } catch (const std::exception& error) {
    status = exit_status(error);
    text = launch::report_of(error) + last_trace();
    launch::note_fault(error);
    alike = (alike && status == kBadInput) || dynamic_cast<const UsageError*>(&error) != nullptr;
  } catch (...) {
  }
  if (!alike) return launch::leave_failed(status, text);
  if (launch::rank_by_environment(launch::current_environment()).rank == 0) {
    log::error(text);
  } else {
    std::this_thread::sleep_for(kHearRankZero);
  }
  return status;
}

// what was printed may still wait in a buffer for a full disk; a reader that has left (| head) is no failure
int flushed(int status) {
  output::check();
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return status;
  if (errno == EPIPE) return status;
  throw Error(format("the output cannot be written: {}", std::strerror(errno)), "standard output",
              "check whether the disk is full");
}

}  // namespace lockstep::cli
