#pragma once
// Another program, started from an argument list, never through a shell.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep::base {

struct Program {
  std::vector<std::string> argv;           // the first is looked for in PATH
  std::vector<std::string> settings = {};  // "NAME=value", added to its environment
  std::optional<int> output = {};  // its standard output, with nothing to read and no errors shown; or ours
  std::optional<int> errors = {};  // with an output of its own: where its errors go
};

/// Fills `child`; returns 0, or the system's error number. Our signal handlers and blocked signals stay ours.
int start_program(const Program& program, pid_t& child);

}  // namespace lockstep::base
