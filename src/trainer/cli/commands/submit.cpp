// lockstep submit CONFIG: the job that trains it, handed to the scheduler; and waited for, in a chain, or as
// a sweep.
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/voice.h"
#include "tools/cluster/hand_in.h"
#include "tools/cluster/sweep.h"
#include "trainer/cli/interrupts.h"
#include "trainer/cli/job_options.h"
#include "trainer/cli/options.h"
#include "trainer/cli/submit_wait.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostLinks = 100;

// Settings of the job scripts that a job takes from where it is submitted; PBS passes no environment on.
constexpr const char* kCarried[] = {
    "LOCKSTEP_SETUP",          "LOCKSTEP_PROGRAM",     "LOCKSTEP_START",  "LOCKSTEP_SRUN_MPI",
    "LOCKSTEP_MAX_RESTARTS",   "LOCKSTEP_ON_TERM",     "LOCKSTEP_REPORT", "LOCKSTEP_THREADS_PER_CORE",
    "LOCKSTEP_MAX_RELAUNCHES", "LOCKSTEP_NODE_TIMEOUT"};

struct SubmitArguments {
  std::string config, scheduler;
  std::vector<std::string> sweeps;
  int64_t links = 1;
  bool wait = false, dry_run = false;
  JobOptions job;
};

struct Plan {
  cluster::Site site;
  cluster::JobRequest request;
  int64_t links = 1;
  fs::path stem;  // of the files that a job keeps: RUNS/.jobs/lockstep-20260504-140211-1234
};

bool read_arguments(SubmitArguments& asked, const std::vector<std::string>& args) {
  Options options(
      "submit", "submits the job that trains a config, as a site wants it",
      {"lockstep submit configs/mnist.yaml --nodes 2 --time 1h --wait",
       "lockstep submit configs/mnist.yaml --site gadi --account a00 --chain 5 --dry-run",
       "lockstep submit configs/pima.yaml --sweep optim.lr=0.1,0.01 --sweep run.seed=0..4 --wait"});
  options.positional("CONFIG.yaml", asked.config, "the config file");
  options.add("scheduler", asked.scheduler, "NAME", "pbs or slurm (the site's, or the one that is here)");
  asked.job.add_to(options);
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

cluster::Site find_site(const SubmitArguments& asked) {
  if (asked.scheduler.empty() && asked.job.site_name().empty())
    return asked.job.site(cluster::guess_scheduler());
  return asked.job.site(asked.scheduler);
}

std::string now_text() {
  const auto now = std::time(nullptr);
  std::tm parts{};
  char text[32] = "";
  if (localtime_r(&now, &parts)) std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

std::vector<std::vector<std::string>> sweep_of(const SubmitArguments& asked, const cluster::Site& site,
                                               const std::string& run) {
  if (asked.sweeps.empty()) return {};
  if (site.arrays == "no")
    throw InputError(format("{} takes no job arrays, so there is no --sweep", site.name), site.path,
                     "submit each run by itself, with --set");
  std::vector<cluster::SweptKey> swept;
  for (const auto& text : asked.sweeps) swept.push_back(cluster::parse_swept(text));
  auto tasks = cluster::tasks_of(swept, run);
  for (const auto& task : tasks) asked.job.load(asked.config, site, task);  // each is a config of its own
  return tasks;
}

Plan plan_of(const SubmitArguments& asked) {
  Plan plan{.site = find_site(asked), .request = {}, .links = asked.links, .stem = {}};
  plan.request = asked.job.request(asked.config, plan.site);
  const auto run = asked.job.load(asked.config, plan.site).settings.run;
  plan.request.sweep = sweep_of(asked, plan.site, run.name);
  const auto shared = asked.job.shared_run_dir(asked.config, plan.site);
  if (shared != run.dir)
    log::info(
        format("run.dir is one that the job alone knows: its script and record go to {}/.jobs", shared));
  plan.stem = fs::absolute(shared) / ".jobs" / format("{}-{}-{}", plan.request.name, now_text(), ::getpid());
  return plan;
}

fs::path with_ending(const Plan& plan, int64_t link, const char* ending) {
  return plan.stem.string() + (plan.links > 1 ? format(".{}", link) : "") + ending;
}

// Each is set, if to nothing: what a job around us was told is not meant for this one.
std::vector<std::pair<std::string, std::string>> variables(const Plan& plan, int64_t link) {
  const bool chain = plan.links > 1;
  std::vector<std::pair<std::string, std::string>> all = {
      {"LOCKSTEP_RECORD", with_ending(plan, link, ".record").string()},
      {"LOCKSTEP_RECORD_TASKS", plan.request.sweep.empty() ? "" : "yes"},
      {"LOCKSTEP_CHAIN", chain ? plan.stem.string() + ".chain" : ""},
      {"LOCKSTEP_LINK", chain ? format("{}", link) : ""},
      {"LOCKSTEP_RUN_FILE", ""}};
  for (const char* name : kCarried) {
    if (const char* value = std::getenv(name); value && *value) all.emplace_back(name, value);
  }
  return all;
}

std::string script_of(const Plan& plan, int64_t link, const std::string& before) {
  auto request = plan.request;
  request.variables = variables(plan, link);
  if (!before.empty()) request.dependency = "afterany:" + before;
  return cluster::render(plan.site, request);
}

int show_plan(const Plan& plan) {
  for (int64_t link = 1; link <= plan.links; ++link) {
    const auto before = link > 1 ? format("JOB-OF-LINK-{}", link - 1) : "";
    const auto script = script_of(plan, link, before);
    const auto command = cluster::submit_command(plan.site, with_ending(plan, link, ".sh").string(), script);
    output::print(format("{}{}\n\n{}", link > 1 ? "\n" : "", cluster::shown(command), script));
  }
  output::check();
  return kDone;
}

void say_unheard(const cluster::SchedulerCommand& command) {
  std::vector<std::string> names;
  for (const auto& name : command.without) {
    if (name.starts_with("SBATCH_") || name.starts_with("PBS_")) names.push_back(name);
  }
  if (!names.empty())
    log::warning(format("set here, and not heard for this job: {} (docs/cli.md)", base::join(names, ", ")));
}

void make_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed)
    throw InputError("the folder for the job's files cannot be made: " + failed.message(), folder.string(),
                     "choose another run.dir");
}

void add_tasks(Submission& submission, const Plan& plan, const std::string& id) {
  const auto record = with_ending(plan, 1, ".record").string();
  for (size_t i = 0; i < plan.request.sweep.size(); ++i) {
    const auto task = cluster::task_id(plan.site.scheduler, id, i);
    submission.jobs.push_back({task, format("{}.{}", record, i), base::join(plan.request.sweep[i], " ")});
  }
}

// A script is handed in whole, and its id heard, or the job would run and nobody could name it.
cluster::Submitted submit_link(const Plan& plan, int64_t link, const Submission& submission) {
  const auto path = with_ending(plan, link, ".sh").string();
  const auto script = script_of(plan, link, submission.jobs.empty() ? "" : submission.jobs.back().id);
  const auto command = cluster::submit_command(plan.site, path, script, submission.scheduler.cluster);
  if (link == 1) say_unheard(command);
  base::replace_file(path, script);
  const Interrupts::Answered told("hearing the job's id first; Ctrl-C again leaves at once, without it\n");
  auto submitted = cluster::submit(command);
  output::line(submitted.id);
  if (!submitted.said.empty()) log::info(submitted.said);
  return submitted;
}

// Those that are there already are said, where one is refused or somebody interrupts.
void say_missing_links(const Submission& submission, const Plan& plan, int64_t link) {
  if (!submission.jobs.empty())
    log::warning(format("link {} of {} was not submitted; those before it are:\n{}", link, plan.links,
                        how_to_follow(submission)));
}

Submission submit(const Plan& plan) {
  Submission submission{{plan.site.scheduler}, plan.request.name, {}, !plan.request.sweep.empty()};
  for (int64_t link = 1; link <= plan.links; ++link) try {
      if (Interrupts::came()) {
        log::warning(format("interrupted: {} of {} jobs were submitted", link - 1, plan.links));
        break;
      }
      const auto submitted = submit_link(plan, link, submission);
      submission.scheduler.cluster = submitted.cluster;
      submission.sweep ? add_tasks(submission, plan, submitted.id)
                       : submission.jobs.push_back({submitted.id, with_ending(plan, link, ".record")});
    } catch (const Error&) {
      say_missing_links(submission, plan, link);
      throw;
    }
  return submission;
}

}  // namespace

int run_submit(const std::vector<std::string>& args) {
  SubmitArguments asked;
  if (!read_arguments(asked, args)) return kDone;
  const auto self = launch::rank_by_environment(launch::current_environment());
  if (self.world > 1 && self.rank > 0) return kDone;  // one job
  check_arguments(asked);
  const auto plan = plan_of(asked);
  script_of(plan, 1, "");  // what the site cannot give is refused before anything is written
  JobOptions::say_which(plan.site);
  if (asked.dry_run) return show_plan(plan);
  make_folder(plan.stem.parent_path());
  const Interrupts interrupts;
  const auto submission = submit(plan);
  if (submission.jobs.empty()) return kInterrupted;
  if (Interrupts::came()) return leave_alone(submission);
  if (asked.wait) return wait_for(submission);
  log::info(how_to_follow(submission));
  return kDone;
}

}  // namespace lockstep::cli
