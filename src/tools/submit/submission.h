#pragma once
// Jobs that lockstep submits: one, a chain, or an array for a sweep.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/cluster/job_script.h"
#include "tools/cluster/scheduler.h"
#include "trainer/config/load.h"

namespace lockstep::submit {

/// The request's site; without one, the generic site of `scheduler` ("pbs", "slurm"), or of the one that is
/// installed here. Logs its path. InputError where site and scheduler do not agree.
cluster::Site find_site(const cluster::JobRequest& job, const std::string& scheduler);

/// Checks the config. Requests no GPUs if it uses none, and takes the account from SBATCH_ACCOUNT.
void check_config(cluster::JobRequest& job, const cluster::Site& site);

/// The config's run.dir; ./runs if it depends on the job (${PBS_JOBFS}/runs).
std::string shared_run_dir(const cluster::JobRequest& job, const cluster::Site& site);

struct Plan {
  cluster::Site site;
  cluster::JobRequest request;
  int64_t links = 1;           ///< jobs of a chain
  std::filesystem::path stem;  ///< of the jobs' files: RUNS/.jobs/lockstep-20260504-140211-1234
};

/// Writes nothing. `sweeps`: KEY=VALUES each. InputError for what the site cannot provide, and for a task of
/// the sweep with a wrong config.
Plan make_plan(const cluster::JobRequest& job, const std::string& scheduler,
               const std::vector<std::string>& sweeps, int64_t links);

/// A link's file ("STEM.2.sh"), and its script, which depends on the job `before` if there is one.
std::filesystem::path file_of(const Plan& plan, int64_t link, const char* ending);
std::string script_of(const Plan& plan, int64_t link, const std::string& before);

/// The commands and scripts of all links, for --dry-run.
std::string commands_and_scripts(const Plan& plan);

struct SubmittedJob {
  std::string id;
  std::filesystem::path record;
  std::string what = {};  ///< the settings of a sweep's task
};

struct Submission {
  cluster::Scheduler scheduler;
  std::string name;                ///< of the jobs
  std::vector<SubmittedJob> jobs;  ///< the links of a chain, the tasks of a sweep, or one
  bool sweep = false;
};

/// Submits the jobs and prints their ids. If the scheduler refuses one, logs those before it and throws.
Submission submit_all(const Plan& plan);

/// The commands that show and cancel the jobs.
std::string how_to_follow(const Submission& submission);

/// Follows log and progress to the end, through restarts, and returns the exit status of the runs.
int wait_for(const Submission& submission);

}  // namespace lockstep::submit
