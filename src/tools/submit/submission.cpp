#include "tools/submit/submission.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/scheduler.h"
#include "trainer/config/config_text.h"

namespace lockstep::submit {
namespace {

namespace fs = std::filesystem;

// The config as a job of the site reads it. `of_job` stands for what only a job's environment knows.
config::Loaded load(const cluster::JobRequest& job, const cluster::Site& site,
                    const std::vector<std::string>& more_sets = {}, const std::string& of_job = "/tmp") {
  auto environment = launch::current_environment();
  for (const char* name : {"LOCKSTEP_SCRATCH", "PBS_ARRAY_INDEX", "PBS_JOBFS", "PBS_JOBID", "SLURM_JOB_ID",
                           "SLURM_ARRAY_TASK_ID", "SLURM_TMPDIR", "TMPDIR"})
    environment[name] = of_job;
  if (!site.scratch.empty()) environment[site.scratch] = of_job;
  for (const char* name : {"PBS_O_WORKDIR", "SLURM_SUBMIT_DIR"})
    environment[name] = fs::current_path().string();
  const auto text = config::read_config_text(job.config);
  auto sets = job.sets;
  sets.insert(sets.end(), more_sets.begin(), more_sets.end());
  return config::load_settings(text.text, text.name, sets, environment);
}

// All are set, if only to nothing: a job around this process may have set them for itself.
std::vector<std::pair<std::string, std::string>> variables(const Plan& plan, int64_t link) {
  const bool chain = plan.links > 1;
  std::vector<std::pair<std::string, std::string>> all = {
      {"LOCKSTEP_RECORD", file_of(plan, link, ".record").string()},
      {"LOCKSTEP_SUBMITTED", plan.command},
      {"LOCKSTEP_RUN_FILE", chain ? plan.stem.string() + ".chain" : ""},
      {"LOCKSTEP_LINK", chain ? format("{}", link) : ""},
      {"LOCKSTEP_IS_LAST_LINK", chain && link == plan.links ? "1" : ""}};
  // PBS does not pass the environment of qsub
  for (const char* name : {"LOCKSTEP_SETUP", "LOCKSTEP_START", "LOCKSTEP_SRUN_MPI", "LOCKSTEP_MAX_RESTARTS",
                           "LOCKSTEP_THREADS_PER_CORE", "LOCKSTEP_MAX_RELAUNCHES", "LOCKSTEP_NODE_TIMEOUT"}) {
    if (const char* value = std::getenv(name); value && *value) all.emplace_back(name, value);
  }
  return all;
}

void submit_link(const Plan& plan, int64_t link, Submission& submission) {
  const auto path = file_of(plan, link, ".sh").string();
  const auto script = script_of(plan, link, submission.jobs.empty() ? "" : submission.jobs.back().id);
  base::replace_file(path, script);
  // sbatch and qsub copy the script; others may be able to replace the one in the run's folder before
  const base::TemporaryFolder own;
  const auto copy = (fs::path(own.path()) / fs::path(path).filename()).string();
  base::replace_file(copy, script);
  const auto command = cluster::submit_command(submission.scheduler, copy);
  const auto submitted = cluster::submit(command);
  output::line(submitted.id);
  if (!submitted.said.empty()) log::info(submitted.said);
  submission.scheduler.cluster = submitted.cluster;
  const auto record = file_of(plan, link, ".record");
  if (!submission.sweep) submission.jobs.push_back({submitted.id, record});
  for (size_t i = 0; i < plan.request.sweep.size(); ++i)
    submission.jobs.push_back({cluster::task_id(submission.scheduler, submitted.id, i),
                               format("{}.{}", record.string(), i), base::join(plan.request.sweep[i], " ")});
}

}  // namespace

cluster::Site find_site(const cluster::JobRequest& job, const std::string& scheduler) {
  const auto generic = scheduler.empty() && job.site.empty() ? cluster::guess_scheduler() : scheduler;
  const auto site = cluster::load_site(job.site.empty() ? generic : job.site);
  if (!scheduler.empty() && site.scheduler != scheduler)
    throw InputError(format("the site {} uses {}, not {}", site.name, site.scheduler, scheduler), site.path,
                     format("use {} instead", site.scheduler));
  log::info(format("site {}: {}", site.name, site.path));
  return site;
}

void check_config(cluster::JobRequest& job, const cluster::Site& site) {
  const auto loaded = load(job, site);
  for (const auto& warning : loaded.warnings) log::warning(warning);
  const char* account = std::getenv("SBATCH_ACCOUNT");  // many users set it in their profile
  if (site.slurm() && job.account.empty() && account) job.account = account;
  if (job.gpus_per_node < 0 && loaded.settings.launch.device == "cpu") job.gpus_per_node = 0;
}

std::string shared_run_dir(const cluster::JobRequest& job, const cluster::Site& site) {
  const auto dir = load(job, site).settings.run.dir;
  return dir == load(job, site, {}, "/tmp/of-a-job").settings.run.dir ? dir : "runs";
}

Plan make_plan(const cluster::JobRequest& job, const std::string& scheduler,
               const std::vector<std::string>& sweeps, int64_t links) {
  Plan plan{.site = find_site(job, scheduler), .request = job, .links = links, .stem = {}};
  check_config(plan.request, plan.site);
  const auto run = load(job, plan.site).settings.run;
  if (!sweeps.empty() && plan.site.arrays == "no")
    throw InputError(format("the site {} has no job arrays, which --sweep needs", plan.site.name),
                     plan.site.path, "submit each run separately, with --set");
  if (!sweeps.empty()) plan.request.sweep = cluster::sweep_tasks(sweeps, run.name);
  for (const auto& task : plan.request.sweep) {
    try {
      load(job, plan.site, task);
    } catch (const InputError& error) {
      const auto& where = error.where();
      throw InputError(error.what(), where.starts_with("--set ") ? "--sweep" + where.substr(5) : where,
                       error.hint());
    }
  }
  if (plan.request.sweep.size() == 1 && !plan.site.slurm()) {  // PBS has no array of one task
    plan.request.sets.insert(plan.request.sets.end(), plan.request.sweep[0].begin(),
                             plan.request.sweep[0].end());
    plan.request.sweep.clear();
  }
  const auto shared = shared_run_dir(job, plan.site);
  if (shared != run.dir)
    log::info(format("run.dir differs per job, so the job script is stored in {}/.jobs", shared));
  auto time = launch::utc_text(std::chrono::system_clock::now());
  std::erase(time, ':');
  plan.stem = fs::absolute(shared) / ".jobs" / format("{}-{}-{}", job.name, time, ::getpid());
  script_of(plan, 1, "");  // refuses what the site cannot provide before anything is written
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

std::string commands_and_scripts(const Plan& plan) {
  std::string text;
  for (int64_t link = 1; link <= plan.links; ++link) {
    const auto before = link > 1 ? format("JOB-OF-LINK-{}", link - 1) : "";
    const auto script = script_of(plan, link, before);
    const auto command = cluster::submit_command({plan.site.scheduler}, file_of(plan, link, ".sh").string());
    text += format("{}{}\n\n{}", link > 1 ? "\n" : "", cluster::shell_line(command), script);
  }
  return text;
}

std::string how_to_follow(const Submission& submission) {
  const auto& scheduler = submission.scheduler;
  const auto& first = submission.jobs.front().id;
  std::vector<std::string> cancel;
  for (const auto& job : submission.jobs) cancel.push_back(cluster::cancel_command(scheduler, job.id));
  const auto all = submission.sweep ? cluster::array_of(first) : first;
  return format(
      "log file: {}\nto see the job's state, run: {}\nto compare results, run: lockstep runs DIR (run.dir)\n"
      "to stop with a checkpoint, run: lockstep stop RUN_FOLDER\nto cancel, run: {}",
      cluster::log_of(scheduler, submission.name, first), cluster::show_command(scheduler, all),
      submission.sweep ? cluster::cancel_command(scheduler, all) : base::join(cancel, "; "));
}

Submission submit_all(const Plan& plan) {
  std::error_code failed;
  fs::create_directories(plan.stem.parent_path(), failed);
  if (failed)
    throw InputError("the folder for the job's files cannot be created: " + failed.message(),
                     plan.stem.parent_path().string(), "choose another run.dir");
  Submission submission{{plan.site.scheduler}, plan.request.name, {}, !plan.request.sweep.empty()};
  // signals wait: the scheduler may have accepted a job whose id is not known yet
  sigset_t held, before, waiting;
  sigemptyset(&held);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&held, signal);
  ::pthread_sigmask(SIG_BLOCK, &held, &before);
  const auto is_interrupted = [&] {
    ::sigpending(&waiting);
    return ::sigismember(&waiting, SIGINT) == 1 || ::sigismember(&waiting, SIGTERM) == 1;
  };
  int64_t link = 1;
  for (; link <= plan.links && !is_interrupted(); ++link) try {
      submit_link(plan, link, submission);
    } catch (const Error&) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      if (link > 1)
        log::warning(format("job {} of {} was not submitted, but the earlier ones were:\n{}", link,
                            plan.links, how_to_follow(submission)));
      throw;
    }
  if (link <= plan.links) log::warning(format("interrupted after job {} of {}", link - 1, plan.links));
  if (!submission.jobs.empty()) log::info(how_to_follow(submission));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return submission;
}

}  // namespace lockstep::submit
