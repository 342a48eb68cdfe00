#pragma once
// The table of subcommands, which `lockstep --help` lists, and the program's version.

#include <string>
#include <vector>

namespace lockstep::cli {

struct Subcommand {
  std::string name;
  std::string summary;
  int (*run)(const std::vector<std::string>& args);  // args: what follows the command's name
};

const std::vector<Subcommand>& commands();

/// Whether the command joins the ranks of a job; the others run anywhere, each process for itself.
bool joins_job(const std::string& command);

/// What this program was built from: lockstep, commit, libtorch, MPI, CUDA, NCCL and compiler, a line each.
std::string version_text();
/// The version and the commit alone.
std::string version_line();

}  // namespace lockstep::cli
