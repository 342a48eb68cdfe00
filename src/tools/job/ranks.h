#pragma once
// `lockstep job`: one start of a job's ranks, and the job around it.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "tools/job/own_job.h"

namespace lockstep::job {

/// Blocks SIGUSR1, SIGUSR2, SIGTERM and SIGCHLD from its construction on, and returns them one by one.
class Signals {
 public:
  Signals();
  /// The signals since the last call.
  std::vector<int> take();
  int descriptor() const { return file_.number(); }
  /// Unblocks them, before this process executes another program.
  static void release();

 private:
  base::Descriptor file_;
};

/// Runs `lockstep job WORDS`, and returns the exit status. `program`: the one that the ranks run.
int run_job(const std::vector<std::string>& words, Signals& signals, const std::string& program);

/// "a=1 b=2" as --set a=1 --set b=2; @FILE has one setting per line. InputError for quotes and backslashes.
std::vector<std::string> settings_in(const std::string& text);

/// Whether the ranks' errors (lines of JSON) name only lost ranks or nodes. `nodes_lost`: nodes were found
/// to be lost.
bool only_ranks_were_lost(const std::vector<std::string>& errors, bool nodes_lost);

// ---- one start of the ranks ----

/// A line of the job's log.
void say(const std::string& text);

struct RanksPlan {
  Launcher launcher;
  std::vector<std::string> words;  ///< the program and its arguments
  Environment environment;
  std::string run_file = {};     ///< receives the run folder's path; empty = the ranks do not train
  std::string errors_file = {};  ///< receives the ranks' errors
  bool survives_losses = false;  ///< with train.as_world: the launcher must not wait for lost ranks
  std::chrono::milliseconds patience = std::chrono::seconds(10);  ///< with a launcher that outlives its ranks
};

struct RanksEnd {
  int status = 0;                  ///< of the launcher
  std::string out_of_memory = {};  ///< what was killed, and the limit; empty = no process
  bool is_guess = false;           ///< the job's end may have another reason
};

/// The processes below this one except those of `others`: all, or those that have the name or are `known`.
std::vector<pid_t> descendants(const std::vector<pid_t>& others = {}, const std::string& name = "",
                               const std::vector<pid_t>& known = {});

/// What a job's starts of ranks have in common.
struct JobSignals {
  Signals& signals;
  StopSignal stop = {};
  /// When a job gets SIGUSR1 that is too short for the scheduler's, of which the first is ignored.
  std::optional<std::chrono::steady_clock::time_point> own_warning = {};
  bool has_ignored_warning = false;
  std::vector<pid_t> others = descendants();  ///< started by LOCKSTEP_SETUP; they run on
};

/// Starts the ranks, forwards signals to them, and waits for the launcher, and ends it if it outlives them.
RanksEnd run_ranks(OwnJob& job, JobSignals& signals, RanksPlan plan);

/// The folder that rank 0 wrote into the run file; empty if there is none yet.
std::string folder_in(const std::string& run_file);

/// The exit status of `lockstep status`; `otherwise` if the folder cannot be read.
int status_of_run(const std::string& folder, int otherwise = kFailed);

/// Adds a signal to `stop`.
void note_signal(int signal, StopSignal& stop);

/// Kills what a killed launcher has left on this node.
void end_leftovers(const JobSignals& signals);

/// Processes that the kernel has killed so far for want of memory in the job's control group, or on the node
/// if the job has none. `root` replaces / in tests.
struct MemoryKills {
  int64_t count = 0;
  std::string limits = {};  ///< "limit 2.00 GiB, peak 1.99 GiB"
  bool is_guess = false;    ///< those of all jobs on the node, or how often the limit was reached
};
MemoryKills memory_kills(const std::string& job_mark, const std::string& root = "");

/// How long the job has run: the age of this process's session.
int64_t seconds_of_session();

}  // namespace lockstep::job
