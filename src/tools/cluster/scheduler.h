#pragma once
// Slurm and PBS from outside a job: where their commands lie, how a script is handed in, and what they say of
// jobs.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/program.h"

namespace lockstep::cluster {

/// Where a job is: what asks after it has to say both.
struct Scheduler {
  std::string name;          // "pbs" or "slurm"
  std::string cluster = {};  // Slurm: as sbatch named it, where it has several

  bool slurm() const { return name == "slurm"; }
};

/// InputError, with `where` and what to do, for a name that is no scheduler's.
void check_scheduler(const std::string& name, const std::string& where, const std::string& hint);

/// "slurm" or "pbs", by the one of sbatch and qsub that is here. InputError where both are, or none.
std::string guess_scheduler();

/// Where a command of the scheduler lies: on PATH, or where PBS installs it. Empty where it is not here.
std::string find_command(const std::string& name);

/// A task of an array, as the scheduler names it.
std::string task_id(const std::string& scheduler, const std::string& array, size_t index);

/// The array of a task.
std::string array_of(const std::string& task);

/// The words with which a person looks after the job, stops it, and where its log will be.
std::string how_to_look(const Scheduler& scheduler, const std::string& job);
std::string how_to_cancel(const Scheduler& scheduler, const std::string& job);
std::string log_of(const std::string& scheduler, const std::string& name, const std::string& job);

/// The text as one word of bash, on one line: what it stands for is exactly these bytes.
std::string quoted(const std::string& text);
std::string quoted(const std::vector<std::string>& words);

// ---- questions ----

/// Runs one of the scheduler's commands. Tests put a fake in its place.
using RunCommand = std::function<base::Answer(const std::vector<std::string>& words)>;

/// The real one: the command ends within `limit`, and hears none of a user's formats and filters.
RunCommand real_commands(std::chrono::milliseconds limit);

struct Seen {
  enum State {
    queued,
    running,
    gone,    ///< it is over, by the scheduler's word
    unknown  ///< the scheduler has not heard of it: yet, or any more
  };
  State state = queued;
  std::string words;  // the scheduler's own: "PENDING (Resources)"
};

struct Look {
  std::map<std::string, Seen> seen;  // without those that the scheduler did not speak of this time
  std::string trouble = {};          // why it did not, in its own words
};

/// What a set of jobs does; of those that squeue does not know, sacct is asked where there is one.
Look look_at(const Scheduler& scheduler, const std::vector<std::string>& jobs, const RunCommand& run);

// What the answers mean.
std::map<std::string, Seen> read_squeue(const std::string& answer, const std::vector<std::string>& jobs);
std::map<std::string, Seen> read_sacct(const std::string& answer);
Seen read_qstat(const std::string& answer);

using Fields = std::map<std::string, std::string>;

/// The fields ("    key = value") of qstat -f and pbsnodes, whose long lines go on with a tab.
Fields qstat_fields(const std::string& answer);

/// Slurm's and PBS's [[DAYS-]HH:]MM:SS in seconds; 0 where it is not a time.
int64_t seconds_in(const std::string& time);

// ---- handing a script in ----

struct SubmitCommand {
  std::vector<std::string> words;
  std::vector<std::string> without = {};  // variables that it is not to hear
};

/// What submits the script that lies, or will lie, at `path`; to that cluster where one is named.
SubmitCommand submit_command(const Scheduler& scheduler, const std::string& path, const std::string& script);

/// The same as a line for a shell.
std::string shown(const SubmitCommand& command);

struct Submitted {
  std::string id;
  std::string cluster;  // where sbatch named one
  std::string said;     // by the scheduler, besides: words for people
};

/// Runs it, to its end whatever Ctrl-C does meanwhile; busy controllers answer late. InputError where the
/// command is not here, Error, in the command's own words, where it refuses, does not answer in time or names
/// no id.
Submitted submit(const SubmitCommand& command, std::chrono::milliseconds limit = std::chrono::minutes(2));

}  // namespace lockstep::cluster
