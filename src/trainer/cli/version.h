#pragma once
// What this program was built from, for `lockstep --version` and bug reports.

#include <string>

namespace lockstep::cli {

/// lockstep, commit, libtorch, MPI, CUDA, NCCL and compiler, a line each.
std::string version_text();

/// The version and the commit alone.
std::string version_line();

}  // namespace lockstep::cli
