#include "tools/submit/submission.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "tools/cluster/scheduler.h"
#include "tools/cluster/sweep.h"
#include "trainer/config/config_text.h"
#include "trainer/config/numbers.h"

namespace lockstep::submit {
namespace {

constexpr const char* kShared = "runs";

// What a config may name and only a job's environment holds: a path through one of these is the job's to
// find.
constexpr const char* kOfAJob[] = {"LOCKSTEP_SCRATCH", "PBS_ARRAY_INDEX",     "PBS_JOBFS",    "PBS_JOBID",
                                   "SLURM_JOB_ID",     "SLURM_ARRAY_TASK_ID", "SLURM_TMPDIR", "TMPDIR"};
// A job's name for the folder that we are in.
constexpr const char* kOfSubmission[] = {"PBS_O_WORKDIR", "SLURM_SUBMIT_DIR"};

// What stands here of these names is of a login node, or of a job around us.
std::map<std::string, std::string> as_in_a_job(const cluster::Site& site, const std::string& unknown) {
  auto environment = launch::current_environment();
  for (const char* name : kOfAJob) environment[name] = unknown;
  if (!site.scratch.empty()) environment[site.scratch] = unknown;
  for (const char* name : kOfSubmission) environment[name] = std::filesystem::current_path().string();
  return environment;
}

std::chrono::milliseconds time_of(const std::string& text) {
  const auto time = config::parse_duration(text);
  if (time) return *time;
  throw InputError(format("--time {}: no time", base::printable(text)), "",
                   "as in --time 30m, --time 2h or --time 1h30m");
}

}  // namespace

cluster::Site find_site(const WantedJob& job, const std::string& scheduler) {
  auto site = cluster::load_site(job.site.empty() ? scheduler : job.site);
  if (scheduler.empty() || site.scheduler == scheduler) return site;
  throw InputError(format("{} is a site of {}, not of {}", site.name, site.scheduler, scheduler), site.path,
                   format("say {} in its place", site.scheduler));
}

void say_which(const cluster::Site& site) {
  log::info(format("site {}: {}", site.name, site.path));
  if (!site.hides.empty())
    log::warning(format("{} counts, not {}, which ships with lockstep", site.path, site.hides));
}

config::Loaded load(const WantedJob& job, const cluster::Site& site, const std::vector<std::string>& more) {
  const auto text = config::read_config_text(job.config);
  auto sets = job.sets;
  sets.insert(sets.end(), more.begin(), more.end());
  return config::load_settings(text.text, text.name, sets, as_in_a_job(site, "/tmp"));
}

// It is the job's alone where it follows what the job's variables hold.
std::string shared_run_dir(const WantedJob& job, const cluster::Site& site) {
  const auto text = config::read_config_text(job.config);
  const auto dir_where = [&](const char* unknown) {
    return config::load_settings(text.text, text.name, job.sets, as_in_a_job(site, unknown)).settings.run.dir;
  };
  const auto dir = dir_where("/tmp");
  return dir == dir_where("/tmp/of-a-job") ? dir : kShared;
}

cluster::JobRequest request(const WantedJob& job, const cluster::Site& site) {
  const auto loaded = load(job, site);
  for (const auto& warning : loaded.warnings) log::warning(warning);
  cluster::JobRequest request;
  request.config = job.config;
  request.sets = job.sets;
  request.name = job.name;
  request.nodes = job.nodes;
  request.gpus_per_node =
      job.gpus_per_node < 0 && loaded.settings.launch.device == "cpu" ? 0 : job.gpus_per_node;
  request.ranks_per_node = job.ranks_per_node;
  request.cores_per_rank = job.cores_per_rank;
  if (!job.time.empty()) request.time = time_of(job.time);
  request.queue = job.queue;
  request.account = job.account;
  request.storage = job.storage;
  return request;
}

namespace {

namespace fs = std::filesystem;

// Settings of the job scripts that a job takes from where it is submitted; PBS passes no environment on.
constexpr const char* kCarried[] = {"LOCKSTEP_SETUP",          "LOCKSTEP_START",
                                    "LOCKSTEP_SRUN_MPI",       "LOCKSTEP_MAX_RESTARTS",
                                    "LOCKSTEP_REPORT",         "LOCKSTEP_THREADS_PER_CORE",
                                    "LOCKSTEP_MAX_RELAUNCHES", "LOCKSTEP_NODE_TIMEOUT"};

std::string now_text() {
  const auto now = std::time(nullptr);
  std::tm parts{};
  char text[32] = "";
  if (localtime_r(&now, &parts)) std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

cluster::Site site_for(const WantedJob& job, const std::string& scheduler) {
  if (scheduler.empty() && job.site.empty()) return find_site(job, cluster::guess_scheduler());
  return find_site(job, scheduler);
}

std::vector<std::vector<std::string>> tasks_of(const std::vector<std::string>& sweeps, const WantedJob& job,
                                               const cluster::Site& site, const std::string& run) {
  if (sweeps.empty()) return {};
  if (site.arrays == "no")
    throw InputError(format("{} takes no job arrays, so there is no --sweep", site.name), site.path,
                     "submit each run by itself, with --set");
  std::vector<cluster::SweptKey> swept;
  for (const auto& text : sweeps) swept.push_back(cluster::parse_swept(text));
  auto tasks = cluster::tasks_of(swept, run);
  for (const auto& task : tasks) load(job, site, task);  // each is a config of its own
  return tasks;
}

// Each is set, if to nothing: what a job around us was told is not meant for this one.
std::vector<std::pair<std::string, std::string>> variables(const Plan& plan, int64_t link) {
  const bool chain = plan.links > 1;
  std::vector<std::pair<std::string, std::string>> all = {
      {"LOCKSTEP_RECORD", file_of(plan, link, ".record").string()},
      {"LOCKSTEP_RECORD_TASKS", plan.request.sweep.empty() ? "" : "yes"},
      {"LOCKSTEP_CHAIN", chain ? plan.stem.string() + ".chain" : ""},
      {"LOCKSTEP_LINK", chain ? format("{}", link) : ""},
      {"LOCKSTEP_RUN_FILE", ""}};
  for (const char* name : kCarried) {
    if (const char* value = std::getenv(name); value && *value) all.emplace_back(name, value);
  }
  return all;
}

}  // namespace

Plan make_plan(const WantedJob& job, const std::string& scheduler, const std::vector<std::string>& sweeps,
               int64_t links) {
  Plan plan{.site = site_for(job, scheduler), .request = {}, .links = links, .stem = {}};
  plan.request = request(job, plan.site);
  const auto run = load(job, plan.site).settings.run;
  plan.request.sweep = tasks_of(sweeps, job, plan.site, run.name);
  const auto shared = shared_run_dir(job, plan.site);
  if (shared != run.dir)
    log::info(
        format("run.dir is one that the job alone knows: its script and record go to {}/.jobs", shared));
  plan.stem = fs::absolute(shared) / ".jobs" / format("{}-{}-{}", plan.request.name, now_text(), ::getpid());
  script_of(plan, 1, "");  // what the site cannot give is refused before anything is written
  return plan;
}

fs::path file_of(const Plan& plan, int64_t link, const char* ending) {
  return plan.stem.string() + (plan.links > 1 ? format(".{}", link) : "") + ending;
}

std::string script_of(const Plan& plan, int64_t link, const std::string& before) {
  auto request = plan.request;
  request.variables = variables(plan, link);
  if (!before.empty()) request.dependency = "afterany:" + before;
  return cluster::render(plan.site, request);
}

std::string shown(const Plan& plan) {
  std::string text;
  for (int64_t link = 1; link <= plan.links; ++link) {
    const auto before = link > 1 ? format("JOB-OF-LINK-{}", link - 1) : "";
    const auto script = script_of(plan, link, before);
    const auto command =
        cluster::submit_command({plan.site.scheduler}, file_of(plan, link, ".sh").string(), script);
    text += format("{}{}\n\n{}", link > 1 ? "\n" : "", cluster::shown(command), script);
  }
  return text;
}

namespace {

void say_unheard(const cluster::SubmitCommand& command) {
  std::vector<std::string> names;
  for (const auto& name : command.without) {
    if (name.starts_with("SBATCH_") || name.starts_with("PBS_")) names.push_back(name);
  }
  if (!names.empty())
    log::warning(
        format("set here, and not heard for this job: {} (docs/reference/cli.md)", base::join(names, ", ")));
}

void add_tasks(Submission& submission, const Plan& plan, const std::string& id) {
  const auto record = file_of(plan, 1, ".record").string();
  for (size_t i = 0; i < plan.request.sweep.size(); ++i) {
    const auto task = cluster::task_id(plan.site.scheduler, id, i);
    submission.jobs.push_back({task, format("{}.{}", record, i), base::join(plan.request.sweep[i], " ")});
  }
}

// A script is handed in whole, and its id heard, or the job would run and nobody could name it.
cluster::Submitted submit_link(const Plan& plan, int64_t link, const Submission& submission) {
  const auto path = file_of(plan, link, ".sh").string();
  const auto script = script_of(plan, link, submission.jobs.empty() ? "" : submission.jobs.back().id);
  const auto command = cluster::submit_command(submission.scheduler, path, script);
  if (link == 1) say_unheard(command);
  base::replace_file(path, script);
  const Interrupts::Answered answered(
      "hearing the job's id first; Ctrl-C again leaves at once, without it\n");
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

}  // namespace

std::string how_to_follow(const Submission& submission) {
  const auto& scheduler = submission.scheduler;
  const auto& first = submission.jobs.front().id;
  std::vector<std::string> cancel;
  for (const auto& job : submission.jobs) cancel.push_back(cluster::how_to_cancel(scheduler, job.id));
  const auto all = submission.sweep ? cluster::array_of(first) : first;
  return format(
      "log: {}; look: {}; results: lockstep runs\nstop: lockstep stop RUN_FOLDER (with a checkpoint), or {}",
      cluster::log_of(scheduler.name, submission.name, submission.sweep ? first : all),
      cluster::how_to_look(scheduler, all),
      submission.sweep ? cluster::how_to_cancel(scheduler, all) : base::join(cancel, "; "));
}

void make_folder(const Plan& plan) {
  const auto folder = plan.stem.parent_path();
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed)
    throw InputError("the folder for the job's files cannot be made: " + failed.message(), folder.string(),
                     "choose another run.dir");
}

Submission submit_all(const Plan& plan) {
  Submission submission{{plan.site.scheduler}, plan.request.name, {}, !plan.request.sweep.empty()};
  for (int64_t link = 1; link <= plan.links; ++link) try {
      if (Interrupts::came()) {
        log::warning(format("interrupted: {} of {} jobs were submitted", link - 1, plan.links));
        break;
      }
      const auto submitted = submit_link(plan, link, submission);
      submission.scheduler.cluster = submitted.cluster;
      submission.sweep ? add_tasks(submission, plan, submitted.id)
                       : submission.jobs.push_back({submitted.id, file_of(plan, link, ".record")});
    } catch (const Error&) {
      say_missing_links(submission, plan, link);
      throw;
    }
  return submission;
}

}  // namespace lockstep::submit
