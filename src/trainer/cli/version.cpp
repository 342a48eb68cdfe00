// What this program was built from.
#include "git_commit.h"  // written at build time by cmake/GitCommit.cmake
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/mpi.h"
#include "trainer/cli/commands.h"

namespace lockstep::cli {
namespace {

// what would be used here and now; may be asked before MPI_Init
std::string mpi_version() {
  try {
    return mpi::load(launch::library_request(launch::current_environment(), "mpi", launch::programs_above()))
        .version;
  } catch (const Error& error) {
    return format("none: {}", error.what());
  }
}

}  // namespace

std::string version_text() {
  std::string text = format("lockstep  {}\n", LOCKSTEP_VERSION);
  text += format("commit    {}\n", LOCKSTEP_GIT_COMMIT);
  text += format("libtorch  {}\n", LOCKSTEP_LIBTORCH_VERSION);
  text += format("MPI       {} (works with {})\n", mpi_version(), base::join(mpi::supported(), ", "));
  text += format("CUDA      {}\n", LOCKSTEP_CUDA_VERSION);
  text += format("NCCL      {}\n", LOCKSTEP_NCCL_VERSION);
  text += format("Python    {}\n", base::find_beside("liblockstep_python.so").empty()
                                       ? "not built in"
                                       : "backend \"lockstep\" available");
  text += format("compiler  {}\n", LOCKSTEP_COMPILER);
  return text;
}

std::string version_line() {
  return format("{} ({})", LOCKSTEP_VERSION, LOCKSTEP_GIT_COMMIT);
}

}  // namespace lockstep::cli
