#pragma once
// The scheduler's own commands: submitting a job, and asking what became of it. Each is started from an
// argument list and has its time.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lockstep/cluster/site.h"

namespace lockstep::cluster {

/// "slurm" or "pbs", by the one of sbatch and qsub that is here. InputError where both are, or none.
std::string guess_scheduler();

/// Where a command of the scheduler lies: on PATH, or where PBS installs it. Empty where it is not here.
std::string find_command(const std::string& name);

/// The words that submit the script.
std::vector<std::string> submit_words(const Site& site, const std::string& script);

/// Runs them; the job's id. InputError where the command is not here, Error, in the command's own words,
/// where it refuses or does not answer.
std::string submit(const std::vector<std::string>& words);

/// A task of an array, as the scheduler names it.
std::string task_id(const std::string& scheduler, const std::string& array, size_t index);

/// The array of a task.
std::string array_of(const std::string& task);

/// The words with which a person looks after the job, stops it, and where its log will be.
std::string how_to_look(const std::string& scheduler, const std::string& job);
std::string how_to_cancel(const std::string& scheduler, const std::string& job);
std::string log_of(const std::string& scheduler, const std::string& name, const std::string& job);

struct Seen {
  enum State { queued, running, gone };
  State state = queued;
  std::string words;  // the scheduler's own: "PENDING (Resources)"
};

/// Asks what a set of jobs does. One that the scheduler did not speak of this time is left out.
std::map<std::string, Seen> look_at(const std::string& scheduler, const std::vector<std::string>& jobs);

// What their answers mean.
std::map<std::string, Seen> read_squeue(const std::string& answer, const std::vector<std::string>& jobs);
Seen read_qstat(const std::string& answer);

}  // namespace lockstep::cluster
