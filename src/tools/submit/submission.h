#pragma once
// Jobs that lockstep submits: one, a chain, or an array for a sweep.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/cluster/job_script.h"
#include "tools/cluster/scheduler.h"
#include "trainer/run_folder/status.h"

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
  std::filesystem::path stem;  ///< of the jobs' files: RUNS/.jobs/lockstep-2026-05-04T140211Z-1234
  std::string command = {};    ///< that submits the same again; empty = unknown
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

// ---- a job, followed to its end through restarts: by its record, its run folder and the scheduler ----

/// What `lockstep job` has written about a job so far.
struct JobRecord {
  std::string job;                 ///< the id that its script knows; empty = it has not started
  bool replaced = false;           ///< a new job, which is `job`, continues the run
  bool started = false;            ///< it is running, or has run
  int restarts = 0;                ///< of the job, or by new jobs
  std::filesystem::path run_file;  ///< receives the path of the run folder
  std::filesystem::path folder;    ///< the run folder, once the script has ended
  std::optional<int> status = {};  ///< the exit status of the script
};

JobRecord parse_record(const std::string& text);

/// How long to wait for the record of a job that the scheduler says is over or does not know, because file
/// systems and controllers may be slow, and for a scheduler that is silent after the script's end.
struct WatchLimits {
  std::chrono::milliseconds over = std::chrono::seconds(10);
  std::chrono::milliseconds unknown = std::chrono::seconds(120);
  std::chrono::milliseconds silent = std::chrono::seconds(60);
};

class JobWatch {
 public:
  /// `job`: the id that the scheduler gave it.
  JobWatch(std::string job, std::filesystem::path file, WatchLimits limits = {})
      : job_(std::move(job)), file_(std::move(file)), limits_(limits) {}

  enum Phase { queued, running, over };
  Phase phase = queued;
  JobRecord record = {};
  std::optional<cluster::JobState> state = {};  ///< the scheduler's last answer since the record has changed
  std::filesystem::path folder = {};
  int status = kFailed;      ///< of a run that is over, or of the script
  std::string verdict = {};  ///< of a run that is over

  /// The id of the one that runs now.
  const std::string& job() const { return record.replaced ? record.job : job_; }
  /// Reads the record.
  Phase update();
  void set_state(const cluster::JobState& state);

 private:
  bool is_over() const;

  std::string job_;
  std::filesystem::path file_;
  WatchLimits limits_;
  std::string text_ = {};                                                           ///< of the record
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();  ///< of that answer
  std::optional<run_folder::StatusReport> report_ = {};  ///< of the run when its script ended
};

}  // namespace lockstep::submit
