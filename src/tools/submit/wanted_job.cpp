#include "tools/submit/wanted_job.h"

#include <chrono>
#include <filesystem>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
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

}  // namespace lockstep::submit
