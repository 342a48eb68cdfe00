#include "lockstep/cli/version.h"

#include <mpi.h>

#include <array>

#include "git_commit.h"  // written at build time by cmake/GitCommit.cmake
#include "lockstep/base/format.h"

namespace lockstep::cli {
namespace {

// the library that is loaded now, not the one it was built with; may be asked before MPI_Init
std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string whole(text.data());
  return whole.substr(0, whole.find_first_of(",\n"));
}

}  // namespace

std::string version_text() {
  std::string text = format("lockstep  {}\n", LOCKSTEP_VERSION);
  text += format("commit    {}\n", LOCKSTEP_GIT_COMMIT);
  text += format("libtorch  {}\n", LOCKSTEP_LIBTORCH_VERSION);
  text += format("MPI       {}\n", mpi_version());
  text += format("CUDA      {}\n", LOCKSTEP_CUDA_VERSION);
  text += format("NCCL      {}\n", LOCKSTEP_NCCL_VERSION);
  text += format("compiler  {}\n", LOCKSTEP_COMPILER);
  return text;
}

std::string version_line() {
  return format("{} ({})", LOCKSTEP_VERSION, LOCKSTEP_GIT_COMMIT);
}

}  // namespace lockstep::cli
