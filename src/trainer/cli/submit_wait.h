#pragma once
// `lockstep submit --wait`: a job's log and progress to its end, through requeues, chains and sweeps.

#include <filesystem>
#include <string>
#include <vector>

#include "tools/cluster/scheduler.h"

namespace lockstep::cli {

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

/// Follows it to its end and returns its status, by the runs' own word. Where Interrupts::came(), it leaves
/// the jobs alone and returns 130.
int wait_for(const Submission& submission);

/// Says that nobody waits any longer, and how to follow; 130.
int leave_alone(const Submission& submission);

/// How to look after the job and how to stop it, in a line or two.
std::string how_to_follow(const Submission& submission);

}  // namespace lockstep::cli
