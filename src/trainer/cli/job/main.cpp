// lockstep-job, which `lockstep job` executes: a separate program, so that it does not load libtorch.
#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/log.h"
#include "tools/job/job.h"

int main(int argc, char** argv) {
  lockstep::job::Signals signals;  // first: signals wait until the ranks can take them
  lockstep::base::open_standard_descriptors();
  try {
    const char* set = std::getenv("LOCKSTEP_PROGRAM");
    const auto beside = std::filesystem::canonical("/proc/self/exe").parent_path() / "lockstep";
    return lockstep::job::run_job({argv + 1, argv + argc}, signals, set && *set ? set : beside.string());
  } catch (const std::exception& error) {
    lockstep::log::error(lockstep::describe(error));
    return lockstep::exit_status(error);
  }
}
