#pragma once
// Another program, started from an argument list, never through a shell.

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

struct Program {
  std::vector<std::string> argv;           // the first is looked for in PATH
  std::vector<std::string> settings = {};  // "NAME=value", added to its environment
  std::optional<int> output = {};  // its standard output; then its input is empty. nullopt: all are ours
  std::optional<int> errors = {};  // with `output`: its standard error; nullopt: discarded
  std::vector<std::string> without = {};  // names removed from its environment; "NAME_*" = a prefix
  std::vector<int> blocked = {};          // signals that it starts with blocked
  bool apart = false;                     // in its own process group, which Ctrl-C does not reach
};

/// Whether the name is one of these; "NAME_*" = a prefix.
bool is_among(std::string_view name, const std::vector<std::string>& patterns);

/// Fills `child`; returns 0 or the system's error number. The child does not inherit our signal handlers.
int start_program(const Program& program, pid_t& child);

/// A program's output and exit status.
struct Answer {
  enum End { left, late, not_started };
  End end = not_started;
  int status = -1;  // its exit status; a signal's number + 128
  std::string output, errors;
  bool whole = false;  // `output` is all of its output

  bool good() const { return end == left && status == 0; }
};

/// Runs a program with nothing to read. If it takes longer than `timeout`, or prints 64 MiB, it is killed,
/// with its process group if that is its own. Keeps at most 1 MiB of what it printed. Does not wait for
/// processes that it leaves behind.
Answer ask(const std::vector<std::string>& argv, std::chrono::milliseconds timeout);

/// The same for a program with its own environment or process group.
Answer ask(Program program, std::chrono::milliseconds timeout);

/// Its whole standard output, below 1 MiB, if it exits with 0 in time; else nullopt. `settings`
/// ("NAME=value") are added to its environment.
std::optional<std::string> capture(const std::vector<std::string>& argv, std::chrono::milliseconds timeout,
                                   const std::vector<std::string>& settings = {});

/// Without the blanks and line ends around it.
std::string trimmed(const std::string& text);

/// The parts between the signs; "a,,b" has an empty part, "a," has one part.
std::vector<std::string> split(const std::string& text, char sign);

}  // namespace lockstep::base
