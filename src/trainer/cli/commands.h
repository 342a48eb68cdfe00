#pragma once
// The table of subcommands: what `lockstep --help` lists and what main finds a command in.

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

}  // namespace lockstep::cli
