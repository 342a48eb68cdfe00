#pragma once
// A learner's programs, run side by side within limits of time, memory and output, and ended whatever they
// do.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/fault.h"
#include "lockstep/launch/identify.h"

namespace lockstep::workshop {

struct ProgramLimits {
  std::chrono::milliseconds time{60'000};
  std::chrono::milliseconds grace{12'000};  // that is left to the others once one has failed
  size_t memory = size_t{4} << 30;          // bytes a process may ask for
  size_t together = size_t{4} << 30;        // bytes that all of them may have, with what lies in /dev/shm
  size_t output = size_t{4} << 20;          // bytes it may print
  size_t file = size_t{256} << 20;          // bytes of a file it may write
};

struct ConfinedCommand {
  std::vector<std::string> argv;  // the first is a path, or looked for in PATH
  launch::Environment environment;
  std::string folder;  // where it works
};

enum class Why { left, signal, too_long, too_much_output, too_much_memory, not_started };

/// How a program ended, and what it said.
struct Ending {
  Why why = Why::left;
  int status = 0;                   // left: what it left with; signal: which; not_started: the system's error
  std::string printed = {};         // its standard output and errors
  std::string facts = {};           // what it told us beside (lesson/show, LOCKSTEP_ERRORS)
  std::optional<Fault> error = {};  // that lockstep says it ended with
  bool was_busy = false;            // stopped: it computed to the end, and did not wait for something
  double seconds = 0;               // how long it ran

  bool is_well() const { return why == Why::left && status == 0; }
};

/// Runs them at the same time, each in a session of its own, and returns when all have ended, and what they
/// left behind is gone: processes, and files in /dev/shm. Throws Interrupted where this process is told to
/// end.
std::vector<Ending> run_confined(const std::vector<ConfinedCommand>& commands, const ProgramLimits& limits);

}  // namespace lockstep::workshop
