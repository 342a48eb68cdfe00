#pragma once
// Jobs that were handed to a scheduler.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <list>
#include <string>
#include <vector>

#include "tools/cluster/job_script.h"
#include "tools/cluster/scheduler.h"
#include "tools/cluster/watch.h"
#include "trainer/config/load.h"
#include "trainer/run_folder/console.h"

namespace lockstep::submit {

// A job as somebody asks for it, and what a scheduler's site makes of it.

struct WantedJob {
  std::string config = {};  // the file's path
  std::string site = {};    // a name or a file's path; empty = the generic one of the scheduler
  std::string name = "lockstep", time = {}, queue = {}, account = {}, storage = {};
  int64_t nodes = 1, ranks_per_node = 0, cores_per_rank = 0;
  int64_t gpus_per_node = -1;  // all that the site's have
  std::vector<std::string> sets = {};
};

/// The site that was named, or the generic one of the scheduler ("pbs", "slurm"). InputError where the two
/// do not agree.
cluster::Site find_site(const WantedJob& job, const std::string& scheduler);

/// The config with the job's settings and `more`, in an environment as a job has it.
config::Loaded load(const WantedJob& job, const cluster::Site& site,
                    const std::vector<std::string>& more = {});

/// The config's run.dir, or ./runs where only a job knows it (${PBS_JOBFS}/runs).
std::string shared_run_dir(const WantedJob& job, const cluster::Site& site);

/// What to render. A config that is wrong is an error at once.
cluster::JobRequest request(const WantedJob& job, const cluster::Site& site);

/// Says which site file was taken, and warns where it came before one that ships with lockstep.
void say_which(const cluster::Site& site);

// The jobs that are to be submitted: one, the links of a chain, or an array for a sweep.

struct Plan {
  cluster::Site site;
  cluster::JobRequest request;
  int64_t links = 1;
  std::filesystem::path stem;  // of the files that a job keeps: RUNS/.jobs/lockstep-20260504-140211-1234
};

/// `scheduler`: empty = the site's, or the one that is here. `sweeps`: KEY=VALUES each. Writes nothing.
/// InputError for what the site cannot give, and for a run of the sweep whose config is wrong.
Plan make_plan(const WantedJob& job, const std::string& scheduler, const std::vector<std::string>& sweeps,
               int64_t links);

/// Of one link: its file ("STEM.2.sh"), and the script, which waits for the job `before` where one is named.
std::filesystem::path file_of(const Plan& plan, int64_t link, const char* ending);
std::string script_of(const Plan& plan, int64_t link, const std::string& before);

/// The commands and the scripts, as a person reads them.
std::string shown(const Plan& plan);

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

// What a person sees of one submitted job that is waited for: its state, its log, its progress and its end.

/// How it ended: by its run's own word, else by what its scheduler says and where its log is.
std::string end_of(const cluster::Standing& standing, const std::filesystem::path& log);

class JobScreen {
 public:
  /// `name` of the job, as its log has it.
  JobScreen(std::string scheduler, std::string name)
      : scheduler_(std::move(scheduler)), name_(std::move(name)) {}

  void show(const cluster::Standing& standing);
  /// Waits for the log's end, for a while, and says how the job ended.
  void end(const cluster::Standing& standing);

 private:
  void follow(const std::string& job);
  void pass_on_logs(bool at_end);
  void wait_for_log(std::chrono::seconds longest);
  void show_progress(const cluster::Standing& standing);

  using Clock = std::chrono::steady_clock;
  std::string scheduler_, name_;
  run_folder::Console console_{true};
  std::string job_, said_;
  std::list<cluster::LogTail> logs_;
  Clock::time_point looked_{};
  int64_t epoch_ = 0;
};

}  // namespace lockstep::submit
