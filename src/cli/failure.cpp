#include "cli/failure.h"

#include <exception>

#include "base/error.h"
#include "cli/trace.h"
#include "launch/leave.h"

namespace lockstep::cli {
namespace {

ExitStatus exit_status(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known ? known->exit_status() : kFailed;
}

// libtorch puts its own stack into what(); that belongs to LOCKSTEP_TRACE
std::string text_of(const std::exception& error) {
  const std::string text = describe(error);
  return tracing() ? text + "\n" + last_trace() : text.substr(0, text.find("\nException raised from "));
}

}  // namespace

int guarded(const std::function<int()>& body) {
  // leave_failed() may end this process from inside, so nothing may be left to unwind when it is called
  ExitStatus status = kFailed;
  std::string text = "something was thrown that is no std::exception";
  try {
    return body();
  } catch (const std::exception& error) {
    status = exit_status(error);
    text = text_of(error);
  } catch (...) {
  }
  return leave_failed(status, text);
}

}  // namespace lockstep::cli
