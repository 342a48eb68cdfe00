#include "course/workshop/judges/messages.h"

#include "course/workshop/endings.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

// libstdc++'s word for an index behind the end
bool is_out_of_range(const Fault& error) {
  return error.what.find("range_check") != std::string::npos;
}

}  // namespace

Run run_threads_of(Attempt& attempt, const std::vector<std::string>& args, const std::string& label,
                   const std::string& named) {
  try {
    return attempt.run({.world = 1, .label = label, .args = args});
  } catch (const LeftWithError& error) {
    const char* think =
        is_out_of_range(error.error())
            ? "a vector has no such place: how many numbers has the one that is received into?"
            : "";
    throw NotYet(format("{}:\n{}", named, error.said()), think);
  }
}

}  // namespace lockstep::workshop
