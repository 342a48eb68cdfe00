#pragma once
// Slurm and PBS as a login node sees them: their commands, how a script is submitted, and the state of jobs.

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/program.h"

namespace lockstep::cluster {

struct Scheduler {
  std::string name;          ///< "pbs" or "slurm"
  std::string cluster = {};  ///< Slurm: as sbatch named it, where it has several

  bool slurm() const { return name == "slurm"; }
};

/// InputError, with `where` and a hint, unless the name is "pbs" or "slurm".
void check_scheduler(const std::string& name, const std::string& where, const std::string& hint);

/// "slurm" or "pbs", by the commands that are installed. InputError where neither is.
std::string guess_scheduler();

/// The path of a command: on PATH, or where PBS installs it. Empty where it is not installed.
std::string find_command(const std::string& name);

/// A task of an array, and the array of a task, as the scheduler names them.
std::string task_id(const Scheduler& scheduler, const std::string& array, size_t index);
std::string array_of(const std::string& task);

/// The commands that show and cancel a job, and its log file.
std::string show_command(const Scheduler& scheduler, const std::string& job);
std::string cancel_command(const Scheduler& scheduler, const std::string& job);
std::string log_of(const Scheduler& scheduler, const std::string& name, const std::string& job);

/// The text as one word of bash, on one line.
std::string quoted(const std::string& text);
std::string quoted(const std::vector<std::string>& words);

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// ---- queries ----

/// Runs one of the scheduler's commands. Tests replace it.
using RunCommand = std::function<base::Answer(const std::vector<std::string>& words)>;

/// The real one: it ends the command after `limit`, and hides a user's formats and filters from it.
RunCommand real_commands(std::chrono::milliseconds limit);

/// Why the command failed.
std::string trouble_of(const std::string& command, const base::Answer& answer);

struct JobState {
  enum Kind {
    queued,
    running,
    gone,    ///< it is over
    unknown  ///< the scheduler does not know it: not yet, or no longer
  };
  Kind kind = queued;
  std::string words;  ///< the scheduler's: "PENDING (Resources)"
};

using JobStates = std::map<std::string, JobState>;

struct StatesAnswer {
  JobStates states;          ///< of those jobs that the scheduler answered for
  std::string trouble = {};  ///< why it did not answer
};

/// With squeue or qstat.
StatesAnswer query_jobs(const Scheduler& scheduler, const std::vector<std::string>& jobs,
                        const RunCommand& run);

JobStates parse_squeue(const std::string& answer, const std::vector<std::string>& jobs);
JobStates parse_qstat(const std::string& answer, const std::vector<std::string>& jobs);

using Fields = std::map<std::string, std::string>;

/// The field; `otherwise` if it is missing or empty.
std::string value(const Fields& fields, const std::string& name, const std::string& otherwise = "");

/// The fields of each block of qstat -f and pbsnodes, by its name: "Job Id: 7.server", "Queue: workq", or a
/// node's name.
std::vector<std::pair<std::string, Fields>> qstat_blocks(const std::string& answer);

// ---- submission ----

/// Submits the script that is, or will be, at `path`.
base::Program submit_command(const Scheduler& scheduler, const std::string& path);
std::string shell_line(const base::Program& command);

struct Submitted {
  std::string id;
  std::string cluster;  ///< where sbatch named one
  std::string said;     ///< what the scheduler printed besides
};

/// InputError where the command is not installed; Error, with its output, where it rejects the job, does not
/// answer in time or prints no id.
Submitted submit(const base::Program& command, std::chrono::milliseconds limit = std::chrono::seconds(30));

}  // namespace lockstep::cluster
