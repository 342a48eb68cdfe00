#pragma once
// The schedulers that a job can go to: which one is here, where its commands lie, and how it names things.

#include <string>
#include <vector>

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

/// The command as it is called: its bare name where PATH leads to it, else its path.
std::string command_word(const std::string& name);

/// A task of an array, as the scheduler names it.
std::string task_id(const std::string& scheduler, const std::string& array, size_t index);

/// The array of a task.
std::string array_of(const std::string& task);

/// The words with which a person looks after the job, stops it, and where its log will be.
std::string how_to_look(const Scheduler& scheduler, const std::string& job);
std::string how_to_cancel(const Scheduler& scheduler, const std::string& job);
std::string log_of(const std::string& scheduler, const std::string& name, const std::string& job);

}  // namespace lockstep::cluster
