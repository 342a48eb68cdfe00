#pragma once
// Runs a learner's programs side by side, within limits of time, memory and output.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/launch/identify.h"

namespace lockstep::workshop {

struct ProgramLimits {
  std::chrono::milliseconds time{60'000};
  std::chrono::milliseconds grace{12'000};  // what the others have left once one has failed
  size_t memory = size_t{2} << 30;          // bytes of data of one process
  size_t output = size_t{4} << 20;          // bytes that a process may print
  size_t file = size_t{256} << 20;          // bytes of a file that it may write
};

struct Command {
  std::vector<std::string> argv;  // the first is a path, or is looked for in PATH
  launch::Environment environment;
  std::string folder;  // the working folder
};

enum class Why { left, signal, too_long, too_much_output, not_started };

/// How a program ended, and what it wrote.
struct Ending {
  Why why = Why::left;
  int status = 0;                   // left: the exit code; signal: its number; not_started: errno
  std::string printed = {};         // standard output and standard error
  std::string facts = {};           // what show() and LOCKSTEP_ERRORS wrote
  std::optional<Fault> error = {};  // the lockstep error it ended with
  bool was_busy = false;            // stopped while it computed, and not while it waited
  double seconds = 0;

  bool is_well() const { return why == Why::left && status == 0; }
};

/// Runs the programs at the same time, each in a process group of its own, until all have ended. Throws
/// Interrupted, with all of them killed, when this process gets SIGINT, SIGTERM or SIGHUP.
std::vector<Ending> run_limited(const std::vector<Command>& commands, const ProgramLimits& limits);

class Interrupted : public Error {
 public:
  explicit Interrupted(int number) : Error("interrupted"), number_(number) {}
  /// The signal.
  int number() const { return number_; }

 private:
  int number_;
};

/// From now on SIGINT, SIGTERM and SIGHUP are noted for check_interrupted().
void note_interruptions();
/// Throws Interrupted if one has come.
void check_interrupted();

}  // namespace lockstep::workshop
