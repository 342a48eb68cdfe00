#include "tools/submit/plan.h"

#include <unistd.h>

#include <cstdlib>
#include <ctime>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "tools/cluster/hand_in.h"
#include "tools/cluster/sweep.h"

namespace lockstep::submit {
namespace {

namespace fs = std::filesystem;

// Settings of the job scripts that a job takes from where it is submitted; PBS passes no environment on.
constexpr const char* kCarried[] = {
    "LOCKSTEP_SETUP",          "LOCKSTEP_PROGRAM",     "LOCKSTEP_START",  "LOCKSTEP_SRUN_MPI",
    "LOCKSTEP_MAX_RESTARTS",   "LOCKSTEP_ON_TERM",     "LOCKSTEP_REPORT", "LOCKSTEP_THREADS_PER_CORE",
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
    const auto command = cluster::submit_command(plan.site, file_of(plan, link, ".sh").string(), script);
    text += format("{}{}\n\n{}", link > 1 ? "\n" : "", cluster::shown(command), script);
  }
  return text;
}

}  // namespace lockstep::submit
