#include "trainer/cli/job_options.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "trainer/config/numbers.h"

namespace lockstep::cli {
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

void JobOptions::add_to(Options& options) {
  options.add("site", site_, "SITE", "a site by name (lockstep site list), or the path of its file");
  options.add("nodes", nodes_, "N", "nodes of the job (1)");
  options.add("gpus-per-node", gpus_, "N", "GPUs of each node (all that the site's have)");
  options.add("ranks-per-node", ranks_, "N", "ranks on each node (one a GPU; without GPUs the site's, or 2)");
  options.add("cpus-per-rank", cores_, "N", "cores of a rank (its share)");
  options.add("time", time_, "TIME", "how long: 30m, 2h, 1h30m (30m)");
  options.add("queue", queue_, "NAME", "queue, partition or QOS (the site's default)");
  options.add("account", account_, "NAME", "account or project that is charged");
  options.add("storage", storage_, "NAMES", "file systems that the job needs, where a site asks (PBS)");
  options.add("name", name_, "NAME", "the job's name (lockstep)");
  options.add("set", sets_, "KEY=VALUE", "override a key of the config; may be given again");
}

cluster::Site JobOptions::site(const std::string& scheduler) const {
  auto site = cluster::load_site(site_.empty() ? scheduler : site_);
  if (scheduler.empty() || site.scheduler == scheduler) return site;
  throw InputError(format("{} is a site of {}, not of {}", site.name, site.scheduler, scheduler), site.path,
                   format("say {} in its place", site.scheduler));
}

void JobOptions::say_which(const cluster::Site& site) {
  log::info(format("site {}: {}", site.name, site.path));
  if (!site.hides.empty())
    log::warning(format("{} counts, not {}, which ships with lockstep", site.path, site.hides));
}

config::Loaded JobOptions::load(const std::string& config, const cluster::Site& site,
                                const std::vector<std::string>& more) const {
  const auto text = config::read_config_text(config);
  auto sets = sets_;
  sets.insert(sets.end(), more.begin(), more.end());
  return config::load_settings(text.text, text.name, sets, as_in_a_job(site, "/tmp"));
}

// It is the job's alone where it follows what the job's variables hold.
std::string JobOptions::shared_run_dir(const std::string& config, const cluster::Site& site) const {
  const auto text = config::read_config_text(config);
  const auto dir_where = [&](const char* unknown) {
    return config::load_settings(text.text, text.name, sets_, as_in_a_job(site, unknown)).settings.run.dir;
  };
  const auto dir = dir_where("/tmp");
  return dir == dir_where("/tmp/of-a-job") ? dir : kShared;
}

cluster::JobRequest JobOptions::request(const std::string& config, const cluster::Site& site) const {
  const auto loaded = load(config, site);
  for (const auto& warning : loaded.warnings) log::warning(warning);
  cluster::JobRequest request;
  request.config = config;
  request.sets = sets_;
  request.name = name_;
  request.nodes = nodes_;
  request.gpus_per_node = gpus_ < 0 && loaded.settings.launch.device == "cpu" ? 0 : gpus_;
  request.ranks_per_node = ranks_;
  request.cores_per_rank = cores_;
  if (!time_.empty()) request.time = time_of(time_);
  request.queue = queue_;
  request.account = account_;
  request.storage = storage_;
  return request;
}

}  // namespace lockstep::cli
