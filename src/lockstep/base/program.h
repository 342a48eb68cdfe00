#pragma once
// Another program, started from an argument list, never through a shell.

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

struct Program {
  std::vector<std::string> argv;           // the first is looked for in PATH
  std::vector<std::string> settings = {};  // "NAME=value", added to its environment
  std::optional<int> output = {};  // its standard output, with nothing to read and no errors shown; or ours
  std::optional<int> errors = {};  // with an output of its own: where its errors go
  std::vector<std::string> without = {};  // names that its environment lacks; "NAME_*" = all that begin so
  std::vector<int> blocked = {};          // signals that wait until it asks for them
  bool apart = false;  // in a process group of its own: the terminal's Ctrl-C is not for it
};

/// Whether the name is one of these; "NAME_*" = all that begin so.
bool is_among(std::string_view name, const std::vector<std::string>& patterns);

/// Fills `child`; returns 0, or the system's error number. Our signal handlers and blocked signals stay ours.
int start_program(const Program& program, pid_t& child);

}  // namespace lockstep::base
