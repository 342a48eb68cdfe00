#pragma once
// A learner's programs, run side by side within limits of time, memory and output; ended whatever they do,
// with nothing left behind.

#include <sys/types.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
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

/// The checker was told to end; all that it had started is gone.
class Interrupted : public Error {
 public:
  explicit Interrupted(int number) : Error("interrupted"), number_(number) {}
  /// The signal.
  int number() const { return number_; }

 private:
  int number_;
};

/// While one lives, SIGINT, SIGTERM and SIGHUP are noted. Who ignored one before still does.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  /// Throws Interrupted where one has come.
  static void check();

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// The children of a process, those of its threads too; none where it is gone.
std::set<pid_t> children_of(pid_t pid);
/// Its children, and theirs, but for some of its own and what is below these.
std::set<pid_t> descendants_of(pid_t pid, const std::set<pid_t>& but);

/// Stopped by a signal: it does not go on until somebody lets it.
bool is_stopped(pid_t pid);

/// While one lives, what programs leave behind becomes ours: daemons too, in sessions of their own. At the
/// end it is ended.
class Reaper {
 public:
  Reaper();
  ~Reaper();
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  /// Children that were there before.
  const std::set<pid_t>& others() const { return others_; }
  /// Ends what is there now, for some seconds at most.
  void sweep() const;

 private:
  bool end_some() const;
  std::set<pid_t> others_;  // started by who became this process
};

/// Goes on in a child. The process that called waits above it, passes on what it is told by signals, and ends
/// as the child does; where the child was killed, with words and status 1.
void stand_guard();

}  // namespace lockstep::workshop
