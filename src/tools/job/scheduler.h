#pragma once
// The scheduler, as the job that it runs sees it: Slurm or PBS behind one interface.

#include <memory>
#include <string>
#include <vector>

#include "tools/cluster/scheduler.h"
#include "tools/job/allocation.h"

namespace lockstep::job {

using cluster::RunCommand;

/// The signals that told a job to stop.
struct StopSignal {
  int signal = 0;            ///< the last one; 0 = none came
  int64_t job_seconds = -1;  ///< how long the job had run at the first SIGTERM; -1 = none came
};

/// How a job whose run stopped early goes on.
struct Continuation {
  bool goes_on = false;
  std::string next = {};  ///< the job that was submitted in its place; empty = the same job starts again
};

class Scheduler {
 public:
  Scheduler(Environment& environment, RunCommand run) : environment_(environment), run_(std::move(run)) {}
  virtual ~Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  virtual bool is_slurm() const = 0;
  virtual std::string job_id() const = 0;
  /// The job's id, and its cluster's name where there is one: a name for the job's files.
  virtual std::string file_word() const = 0;
  /// Also reads the job's record; to be called first.
  virtual Allocation allocation() = 0;

  /// How often the scheduler itself has started this job again.
  virtual int64_t restarts() = 0;
  /// The scheduler has already decided to start this job again.
  virtual bool starts_again() = 0;
  /// A person has cancelled the job.
  virtual bool was_cancelled(const StopSignal& stop) = 0;
  /// After this stop the scheduler may start the job again, which only a later start can tell.
  virtual bool may_start_again(const StopSignal& stop) = 0;
  /// Has the scheduler run the job again. `settings`: what a new job needs in its environment.
  virtual Continuation go_on(const Environment& settings) = 0;
  /// Whether the scheduler says that the job is over, or unknown.
  bool is_gone(const std::string& job) const {
    const auto look = cluster::look_at({is_slurm() ? "slurm" : "pbs"}, {job}, run_);
    const auto found = look.seen.find(job);
    return found != look.seen.end() &&
           (found->second.state == cluster::Seen::gone || found->second.state == cluster::Seen::unknown);
  }
  /// Seconds to wait before a warning counts that the scheduler sent too early; 0 = it counts now.
  virtual int64_t early_by() { return 0; }

  /// The port of the scheduler's daemon on every node; 0 = not known.
  virtual int daemon_port() = 0;
  /// Whether the scheduler can start a process on the node.
  virtual bool reaches(const std::string& node) = 0;
  /// Ends steps whose launcher has gone.
  virtual void end_steps() {}
  /// From now on launchers see these nodes as the job's. Returns a warning, or nothing.
  virtual std::string keep_only(const Allocation& left, const std::vector<std::string>& lost) = 0;

 protected:
  base::Answer run(const std::vector<std::string>& words) const { return run_(words); }
  std::string get(const std::string& name, const std::string& otherwise = "") const {
    return value(environment_, name, otherwise);
  }

  Environment& environment_;

 private:
  RunCommand run_;
};

std::unique_ptr<Scheduler> make_slurm(Environment& environment, RunCommand run);
std::unique_ptr<Scheduler> make_pbs(Environment& environment, RunCommand run);

/// The paragraph of `scontrol show job` about this job, as its fields.
Environment scontrol_job(const std::string& answer, const std::string& job);

/// The script with these settings exported before its first command, in place of what it exported so before.
std::string with_settings(const std::string& script, const Environment& settings);

/// qsub's options that ask for what this job was given.
std::vector<std::string> qsub_options(const Environment& record, const Environment& environment,
                                      int64_t restart);

// ---- the command that starts a job's ranks: srun, or the mpirun or mpiexec of the MPI that is here ----

struct Launcher {
  std::vector<std::string> words;  ///< what starts the ranks of the program that follows
  bool is_srun = false;
};

struct Start {
  const Scheduler& scheduler;
  const Allocation& allocation;
  const Layout& layout;
  bool is_training = false;  ///< the run's folder says how it ended, so exit statuses do not matter
  int relaunches = 0;        ///< how often ranks were lost and started again in this job
  std::string agent = {};    ///< what an MPI without PBS support calls in place of ssh
};

/// Also sets what launcher and ranks find in their environment. InputError where there is no launcher.
Launcher choose_launcher(const Start& start, Environment& environment, const RunCommand& run);

std::string this_host();

}  // namespace lockstep::job
