#pragma once
// Jobs that were handed to a scheduler.

#include <signal.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/cluster/job_script.h"
#include "tools/cluster/scheduler.h"
#include "trainer/config/load.h"

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

// ---- `lockstep submit --wait`: a job's log and progress to its end, through requeues, chains and sweeps
// ----

/// Follows it to its end and returns its status, by the runs' own word. Where Interrupts::came(), it leaves
/// the jobs alone and returns 130.
int wait_for(const Submission& submission);

/// Says that nobody waits any longer, and how to follow; 130.
int detach(const Submission& submission);

// Ctrl-C, or a closed terminal, of who submits a job and waits for it: the job is not ours to end, and its id
// must not be lost.

/// What a program leaves with that Ctrl-C ended.
constexpr int kInterrupted = 128 + SIGINT;

/// For its lifetime a first SIGINT or SIGTERM is only noted; a second one ends the process. SIGHUP is noted
/// however often it comes, as a shell and the kernel each send one for the same terminal; under nohup it is
/// not heard.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  static bool came();

  /// For its lifetime a person who interrupts is told at once why nothing happens.
  class Answered {
   public:
    explicit Answered(std::string text);
    ~Answered();
    Answered(const Answered&) = delete;
    Answered& operator=(const Answered&) = delete;

   private:
    std::string text_;
  };

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace lockstep::submit
