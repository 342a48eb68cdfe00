#include "cli/failure.h"

#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "cli/trace.h"

namespace lockstep::cli {
namespace {

ExitStatus exit_status(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known ? known->exit_status() : kFailed;
}

// libtorch puts its own stack into what(); that belongs to LOCKSTEP_TRACE
std::string without_torch_stack(const std::string& text) {
  return tracing() ? text : text.substr(0, text.find("\nException raised from "));
}

}  // namespace

int guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    log::error(without_torch_stack(describe(error)) + (tracing() ? "\n" + last_trace() : ""));
    return exit_status(error);
  }
}

}  // namespace lockstep::cli
