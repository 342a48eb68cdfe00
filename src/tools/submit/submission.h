#pragma once
// Jobs that were handed to a scheduler.

#include <filesystem>
#include <string>
#include <vector>

#include "tools/cluster/scheduler.h"
#include "tools/submit/plan.h"

namespace lockstep::submit {

struct SubmittedJob {
  std::string id;                // as the scheduler names it
  std::filesystem::path record;  // what its script writes of it
  std::string what = {};         // of a sweep's task: its settings
};

struct Submission {
  cluster::Scheduler scheduler;
  std::string name;                // of the jobs
  std::vector<SubmittedJob> jobs;  // the links of a chain, the tasks of a sweep, or one
  bool sweep = false;
};

/// The folder of the files that the jobs keep.
void make_folder(const Plan& plan);

/// Submits the plan's jobs and prints the id of each. Where somebody interrupts, those that were submitted
/// until then; where one is refused, it says which are there already and throws.
Submission submit_all(const Plan& plan);

/// How to look after the job and how to stop it, in a line or two.
std::string how_to_follow(const Submission& submission);

}  // namespace lockstep::submit
