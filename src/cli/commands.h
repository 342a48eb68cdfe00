#pragma once
// The table of subcommands: what `lockstep --help` lists and what main finds a command in.

#include <string>
#include <vector>

namespace lockstep::cli {

struct Command {
  std::string name;
  std::string summary;
  int (*run)(const std::vector<std::string>& args);  // args: what follows the command's name
};

const std::vector<Command>& commands();

}  // namespace lockstep::cli
