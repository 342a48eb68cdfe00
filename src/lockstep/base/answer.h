#pragma once
// What another program says to a question, its errors too: for people to read where it is no answer.

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/base/program.h"

namespace lockstep::base {

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

}  // namespace lockstep::base
