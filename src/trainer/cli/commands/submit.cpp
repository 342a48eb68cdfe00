// lockstep submit CONFIG: the job that trains it, handed to the scheduler; and waited for, in a chain, or as
// a sweep.
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/process/error_reporter.h"
#include "tools/submit/interrupts.h"
#include "tools/submit/submission.h"
#include "tools/submit/wait.h"
#include "trainer/cli/job_options.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kMostLinks = 100;

struct SubmitArguments {
  std::string scheduler;
  std::vector<std::string> sweeps;
  int64_t links = 1;
  bool wait = false, dry_run = false;
  submit::WantedJob job;
};

bool read_arguments(SubmitArguments& asked, const std::vector<std::string>& args) {
  Options options(
      "submit", "submits the job that trains a config, as a site wants it",
      {"lockstep submit configs/mnist.yaml --nodes 2 --time 1h --wait",
       "lockstep submit configs/mnist.yaml --site gadi --account a00 --chain 5 --dry-run",
       "lockstep submit configs/pima.yaml --sweep optim.lr=0.1,0.01 --sweep run.seed=0..4 --wait"});
  options.positional("CONFIG.yaml", asked.job.config, "the config file");
  options.add("scheduler", asked.scheduler, "NAME", "pbs or slurm (the site's, or the one that is here)");
  add_job_options(options, asked.job);
  options.add("sweep", asked.sweeps, "KEY=VALUES",
              "a job array: a run for each of v1,v2 or 0..4; again for all combinations");
  options.add("chain", asked.links, "N", "N jobs, each goes on where the one before stopped early");
  options.flag("wait", asked.wait, "follow log and progress to the end; leave with the job's status");
  options.flag("dry-run", asked.dry_run, "print the command and the script, submit nothing");
  return options.parse(args);
}

void check_arguments(const SubmitArguments& asked) {
  if (!asked.scheduler.empty())
    cluster::check_scheduler(asked.scheduler, "--scheduler", "pbs or slurm is wanted");
  if (asked.links < 1 || asked.links > kMostLinks)
    throw InputError(format("--chain {}: 1 to {} jobs are wanted", asked.links, kMostLinks), "", "");
  if (asked.links > 1 && !asked.sweeps.empty())
    throw InputError("--chain and --sweep exclude each other", "lockstep submit",
                     "the tasks of a sweep go on by themselves where they stop early");
}

int submit_jobs(const submit::Plan& plan, bool wait) {
  submit::make_folder(plan);
  const submit::Interrupts interrupts;
  const auto submission = submit_all(plan);
  if (submission.jobs.empty()) return submit::kInterrupted;
  if (submit::Interrupts::came()) return leave_alone(submission);
  if (wait) return wait_for(submission);
  log::info(how_to_follow(submission));
  return kDone;
}

}  // namespace

int run_submit(const std::vector<std::string>& args) {
  SubmitArguments asked;
  if (!read_arguments(asked, args)) return kDone;
  const auto self = launch::rank_by_environment(launch::current_environment());
  if (self.world > 1 && self.rank > 0) return kDone;  // one job
  check_arguments(asked);
  const auto plan = submit::make_plan(asked.job, asked.scheduler, asked.sweeps, asked.links);
  submit::say_which(plan.site);
  if (!asked.dry_run) return submit_jobs(plan, asked.wait);
  output::print(submit::shown(plan));
  output::check();
  return kDone;
}

}  // namespace lockstep::cli
