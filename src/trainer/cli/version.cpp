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

std::vector<std::pair<std::string, std::string>> versions() {
  const bool has_python = !base::find_beside("liblockstep_python.so").empty();
  return {{"lockstep", LOCKSTEP_VERSION},
          {"commit", LOCKSTEP_GIT_COMMIT},
          {"libtorch", LOCKSTEP_LIBTORCH_VERSION},
          {"MPI", format("{} (LOCKSTEP_MPI can be {})", mpi_version(), base::join(mpi::supported(), ", "))},
          {"CUDA", LOCKSTEP_CUDA_VERSION},
          {"NCCL", LOCKSTEP_NCCL_VERSION},
          {"Python", has_python ? "backend \"lockstep\" available" : "not built in"},
          {"compiler", LOCKSTEP_COMPILER}};
}

std::string version_text() {
  std::string text;
  for (const auto& [name, version] : versions()) text += format("{:<8}  {}\n", name, version);
  return text;
}

std::string version_line() {
  return format("{} ({})", LOCKSTEP_VERSION, LOCKSTEP_GIT_COMMIT);
}

}  // namespace lockstep::cli
