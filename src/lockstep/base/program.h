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

// What another program says to a question, its errors too: for people to read where it is no answer.

struct Answer {
  enum End { left, late, not_started };
  End end = not_started;
  int status = -1;  // what it left with; a signal's number + 128
  std::string output, errors;
  bool whole = false;  // all of its output is here

  bool good() const { return end == left && status == 0; }
};

/// Runs it from an argument list, never through a shell, with nothing to read. One that takes longer than
/// `timeout` is killed, with its process group where that is its own; what it said by then is kept, 1 MiB at
/// most. What it leaves behind with its output open is not waited for.
Answer ask(const std::vector<std::string>& argv, std::chrono::milliseconds timeout);

/// The same of one with an environment, or a process group, of its own.
Answer ask(Program program, std::chrono::milliseconds timeout);

// What another program prints: run from an argument list, never through a shell, never for longer than asked.

/// Its whole standard output, below 1 MiB, where it left with 0 in time; nullopt otherwise. The program is
/// looked for in PATH.
/// `settings` ("NAME=value") are added to its environment.
std::optional<std::string> capture(const std::vector<std::string>& argv, std::chrono::milliseconds timeout,
                                   const std::vector<std::string>& settings = {});

// Texts that other programs print, taken apart.

/// Without the blanks and line ends around it.
std::string trimmed(const std::string& text);

/// What stands between the signs; "a,,b" has an empty part, and nothing follows a sign at the end.
std::vector<std::string> split(const std::string& text, char sign);

}  // namespace lockstep::base
