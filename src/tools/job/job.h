#pragma once
// `lockstep job`: the batch job that this process runs in, its scheduler, and the starts of its ranks.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "tools/cluster/scheduler.h"

namespace lockstep::job {

using Environment = std::map<std::string, std::string>;
using cluster::contains;
using cluster::RunCommand;
using cluster::value;

/// The variable as a number. InputError unless it is an integer of at least `least`.
int64_t count(const Environment& environment, const std::string& name, int64_t otherwise, int64_t least = 0);

/// "n1" of "n1.cluster".
std::string short_name(const std::string& host);

// ---- the allocation, and the layout of the ranks on it ----

struct Node {
  std::string name;
  int64_t cpus = 1;   ///< as the scheduler counts them: cores or hardware threads
  int64_t tasks = 1;  ///< that the scheduler put on it
  int64_t gpus = 0;
};

struct Allocation {
  std::vector<Node> nodes;
  int64_t threads_per_core = 1;  ///< in `cpus`
  bool tasks_requested = false;  ///< the user requested tasks, so `tasks` counts
  int64_t cpus_per_task = 0;     ///< that the user requested, as the scheduler counts them; 0 = none
  int64_t components = 1;        ///< of a heterogeneous Slurm job
};

/// Of all nodes.
int64_t sum_of(int64_t Node::*field, const Allocation& given);

/// `names`: of the nodes. `threads`: per core in what Slurm counts.
Allocation slurm_allocation(const Environment& environment, const std::vector<std::string>& names,
                            int64_t threads);

/// `record`: the job's fields in `qstat -f`. `node_file`: the lines of PBS_NODEFILE.
Allocation pbs_allocation(const Environment& environment, const Environment& record,
                          const std::vector<std::string>& node_file, int64_t threads);

/// Hardware threads per core in what the scheduler counts: 1 if `counted`, its CPUs of this node, are cores.
/// LOCKSTEP_THREADS_PER_CORE overrides it.
int64_t threads_per_core(const Environment& settings, int64_t counted,
                         const std::string& cpu_folder = "/sys/devices/system/cpu");

/// That this process may use; 0 = unknown.
int64_t own_cores();

struct Layout {
  int64_t nodes = 1, ranks = 1;
  int64_t ranks_per_node = 0;  ///< 0 = as the scheduler put its tasks
  int64_t cores_per_rank = 1;
  int64_t cores_per_node = 1;  ///< of the smallest node
  int64_t cpus_per_node = 1;   ///< the same as the scheduler counts
  int64_t threads_per_core = 1;
  std::vector<std::string> warnings = {};
};

/// One rank per GPU; else one per requested task; else one per core. LOCKSTEP_RANKS_PER_NODE and
/// LOCKSTEP_CPUS_PER_RANK override it.
Layout lay_out(const Allocation& allocation, const Environment& settings);

// ---- the job ----

constexpr const char* kPerhaps = "?";

/// How a job continues after its ranks have stopped.
enum class Fate {
  ended,             ///< nothing: its time is over, or it got a signal
  cancelled,         ///< by a person
  perhaps_restarts,  ///< cancelled, unless the scheduler starts it again: only that start can tell
  restarts,          ///< the scheduler is about to restart it
  unknown            ///< the scheduler does not answer
};

/// This job, as Slurm or PBS sees it.
class OwnJob {
 public:
  OwnJob(Environment& environment, RunCommand run, std::chrono::milliseconds pause)
      : environment_(environment), pause_(pause), run_(std::move(run)) {}
  virtual ~OwnJob() = default;
  OwnJob(OwnJob&&) = delete;

  virtual bool is_slurm() const = 0;
  virtual std::string id() const = 0;
  /// Also reads the job's record; to be called first.
  virtual Allocation allocation() = 0;

  /// How often the scheduler has restarted this job.
  virtual int64_t restarts() = 0;
  /// Seconds since the job began, and that it waited before, although it could have started.
  struct Times {
    int64_t running = 0, queued = 0;
  };
  virtual Times times() = 0;
  /// `stop`: the signal that told it to stop.
  virtual Fate fate(int stop) = 0;
  /// Requeues or resubmits the job, with no further try if a signal waits. Returns the id of the new job,
  /// kPerhaps if there may be one, empty if the same job starts again, or nothing.
  virtual std::optional<std::string> continue_run() = 0;
  /// The energy of its steps so far; 0 = not measured.
  virtual double joules() { return 0; }
  /// The command that submits the same job again, as far as the scheduler knows it. `words`: its arguments.
  virtual std::string submit_line(const std::vector<std::string>& words) = 0;
  /// Why the scheduler ended the job, if it used too much memory; empty otherwise.
  virtual std::string memory_exceeded() { return ""; }
  /// Whether the job is so short that the scheduler's warning comes at its begin.
  virtual bool is_warned_early() { return false; }

  /// The port of the scheduler's daemon on every node; 0 = unknown.
  virtual int daemon_port() = 0;
  /// Whether the scheduler describes this job now.
  virtual bool answers() = 0;
  /// Restricts launchers to these nodes. Returns a warning, or nothing.
  virtual std::string keep_only(const Allocation& left, const std::vector<std::string>& lost) = 0;

 protected:
  base::Answer run(const std::vector<std::string>& words) const { return run_(words); }
  /// Waits ten seconds for a scheduler that is busy, and five minutes (Slurm) or one (PBS) for one that is
  /// down, or `most` seconds. With `until_signal`, only while no signal waits.
  base::Answer ask_again(const std::vector<std::string>& words, bool until_signal = false,
                         int64_t most = 0) const;
  std::string get(const std::string& name, const std::string& otherwise = "") const {
    return value(environment_, name, otherwise);
  }

  Environment& environment_;
  const std::chrono::milliseconds pause_;

 private:
  RunCommand run_;
};

/// By the environment. InputError outside a job.
std::unique_ptr<OwnJob> make_job(Environment& environment, RunCommand run,
                                 std::chrono::milliseconds pause = std::chrono::seconds(1));

/// The script with these settings exported before its first command; replaces those of an earlier call.
std::string with_settings(const std::string& script, const Environment& settings);

/// qsub's options that request what this job has.
std::vector<std::string> qsub_options(const Environment& record, const Environment& environment);

// ---- the command that starts the ranks: srun, or mpirun or mpiexec of the installed MPI ----

/// The name of the steps that srun starts for this job.
constexpr const char* kStepName = "lockstep-ranks";

struct Start {
  const OwnJob& job;
  const Allocation& allocation;
  const Layout& layout;
  bool is_training = false;  ///< the run folder has the result, so exit statuses do not matter
  int relaunches = 0;        ///< restarts of lost ranks in this job
  std::string agent = {};    ///< replaces ssh for an MPI without PBS support
  int64_t own_cores = 0;     ///< that this process may use
};

/// The words before the program. Also sets what launcher and ranks need in their environment. InputError if
/// there is no launcher.
std::vector<std::string> choose_launcher(const Start& start, Environment& environment, const RunCommand& run);

// ---- one start of the ranks ----

/// The processes below this one except those of `others`: all, or those that have the name or are `known`.
std::vector<pid_t> descendants(const std::vector<pid_t>& others = {}, const std::string& name = "",
                               const std::vector<pid_t>& known = {});

/// Blocks SIGUSR1, SIGUSR2, SIGTERM and SIGCHLD from its construction on. All starts of a job's ranks share
/// it.
class Signals {
 public:
  Signals();
  /// The signals since the last call.
  std::vector<int> take();
  /// Adds one to `stop`.
  void note(int signal);
  int descriptor() const { return file_.number(); }

  int stop = 0;                    ///< the last one; SIGTERM stays; 0 = none
  bool ignores_warning = false;    ///< the next SIGUSR1, which the scheduler sends too early
  std::vector<pid_t> others = {};  ///< started by LOCKSTEP_SETUP; they run on

 private:
  base::Descriptor file_;
};

/// Whether a blocked signal other than SIGCHLD waits for this process.
bool signal_waits();

/// Runs `lockstep job WORDS`, and returns the exit status. `program`: the one that the ranks run.
int run_job(const std::vector<std::string>& words, Signals& signals, const std::string& program);

/// "a=1 b=2" as --set a=1 --set b=2; @FILE has one setting per line. InputError for quotes and backslashes.
std::vector<std::string> settings_in(const std::string& text);

/// Whether the ranks' errors (lines of JSON) name only lost ranks or nodes. `nodes_lost`: nodes were found
/// to be lost.
bool only_ranks_were_lost(const std::vector<std::string>& errors, bool nodes_lost);

/// A line of the job's log.
void say(const std::string& text);

struct RanksPlan {
  std::vector<std::string> launcher, words;  ///< words: the program and its arguments
  Environment environment;
  std::string run_file = {};     ///< rank 0 writes the run folder's path into it; empty = no training
  std::string errors_file = {};  ///< receives the ranks' errors
  bool survives_losses = false;  ///< with train.as_world: the launcher must not wait for lost ranks
  std::chrono::milliseconds patience = std::chrono::seconds(10);  ///< with a launcher that outlives its ranks
};

struct RanksEnd {
  int status = 0;                  ///< of the launcher
  std::string out_of_memory = {};  ///< what was killed, and the limit; empty = no process
  bool is_guess = false;           ///< the job's end may have another reason
};

/// Starts the ranks, forwards signals to them, and waits for the launcher, and ends it if it outlives them.
RanksEnd run_ranks(OwnJob& job, Signals& signals, RanksPlan plan);

/// The exit status of `lockstep status`; `otherwise` if the folder cannot be read.
int status_of_run(const std::string& folder, int otherwise = kFailed);

/// Kills what a killed launcher has left on this node.
void end_leftovers(const Signals& signals);

/// How many processes the kernel killed because memory ran out in the job's control group, or on the node
/// if the job has none. `root` replaces / in tests.
struct MemoryKills {
  int64_t count = 0;
  std::string limits = {};  ///< "limit 2.00 GiB, peak 1.99 GiB"
  bool is_guess = false;    ///< those of all jobs on the node
};
MemoryKills memory_kills(const std::string& job_mark, const std::string& root = "");

/// How long the job has run: the age of this process's session.
int64_t seconds_of_session();

}  // namespace lockstep::job
