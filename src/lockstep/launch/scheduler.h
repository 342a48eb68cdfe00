#pragma once
// Which batch system gave this process its job, and what the job was given.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/launch/identify.h"

namespace lockstep::launch {

struct SchedulerRow {
  const char* name;
  const char* job_id;  // the variable that is set inside a job
};

/// The batch system around us; nullptr outside a job.
const SchedulerRow* find_scheduler(const Environment& environment);

struct Phantom {
  std::string what;  // empty = none
  std::string hint;
};

/// Whether this process, rank 0 of 1, stands where N ranks were meant to be. `warnings` takes what only
/// smells.
Phantom find_phantom(const Environment& environment, const Launcher* launcher, bool mpi_spoke,
                     const Surroundings& surroundings, std::vector<std::string>& warnings);

/// Whether the launcher's variables, which say "rank 0 of 1", are a profile's or an earlier job's, below an
/// mpirun or srun that started more. A real torchrun says that it is there.
Phantom find_leftover(const Environment& environment, const Launcher& launcher);

// What schedulers list: the hosts of PBS's node file, Slurm's tasks of each node. Malformed lists are
// InputErrors.

/// One host a line (one line an MPI rank); repeats are kept, blank lines are not.
std::vector<std::string> parse_node_file(const std::string& text);

/// "2(x2),1" -> 2 2 1, as in SLURM_STEP_TASKS_PER_NODE.
std::vector<int> parse_task_counts(const std::string& text);

/// Each host once, in the order of first appearance.
std::vector<std::string> unique_hosts(const std::vector<std::string>& hosts);

/// "n1" and "n1.cluster.org" are the same host.
bool same_host(const std::string& a, const std::string& b);

// When the batch system will end this job.

using Time = std::chrono::system_clock::time_point;

/// The job's end, from the environment or else from the scheduler's own command (squeue, scontrol, qstat),
/// which gets a few seconds to answer; nullopt where nobody tells. For rank 0 alone.
std::optional<Time> job_deadline(const Job& job, const Environment& environment);

/// Is there a scheduler that could tell?
bool has_scheduler(const Job& job);

/// For who leaves `margin` before the end: a job that has no more than that left would leave before its first
/// step, and a chain of such jobs would make none. It is warned of, and gets an end so much later that it
/// leaves halfway.
std::optional<Time> end_to_leave_before(std::optional<Time> end, std::chrono::milliseconds margin, Time now);

/// "1767225600", as in SLURM_JOB_END_TIME.
std::optional<Time> parse_epoch(const std::string& text);
/// "2026-01-01T00:00:00" in this host's time zone, as squeue -o %e prints it; not "NONE" or "Unknown".
std::optional<Time> parse_slurm_time(const std::string& text);
/// The EndTime of `scontrol show job`.
std::optional<Time> parse_scontrol(const std::string& text);
/// Start plus Resource_List.walltime of `qstat -f` (OpenPBS, PBS Pro, Torque).
std::optional<Time> parse_qstat(const std::string& text);

// When the job ends, also where its scheduler was too busy to say so when the run began.

/// The job's end for who leaves `margin` before (end_to_leave_before). Asked at once, and again by a thread
/// until somebody answers: after `wait`, then after twice as long each time, as a job without a limit has no
/// end.
class JobEnd {
 public:
  JobEnd(const Job& job, const Environment& environment, std::chrono::milliseconds margin,
         std::chrono::milliseconds wait = std::chrono::minutes(1));
  ~JobEnd();
  JobEnd(const JobEnd&) = delete;
  JobEnd& operator=(const JobEnd&) = delete;

  /// Nothing as long as nobody has told.
  std::optional<Time> known() const;

 private:
  void ask();

  const Job job_;
  const Environment environment_;
  const std::chrono::milliseconds margin_;
  mutable std::mutex mutex_;
  std::condition_variable leaves_;
  bool left_ = false;
  std::optional<Time> end_;
  std::thread asks_again_;
};

}  // namespace lockstep::launch
