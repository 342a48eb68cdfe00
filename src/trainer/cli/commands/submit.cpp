// lockstep render, site and submit: job scripts, site files, and jobs that the scheduler runs.
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/leave.h"
#include "tools/cluster/scheduler.h"
#include "tools/cluster/site.h"
#include "tools/submit/submission.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {

int run_render(const std::vector<std::string>& args) {
  std::string scheduler, out;
  cluster::JobRequest job;
  Options options(
      "render", "writes a job script for a cluster, without submitting it",
      {"lockstep render slurm configs/mnist.yaml --nodes 2 > job.slurm",
       "lockstep render pbs configs/mnist.yaml --site gadi --account a00 --gpus-per-node 4 --time 2h"});
  options.positional("pbs|slurm", scheduler, "the scheduler");
  options.positional("CONFIG.yaml", job.config, "the config file");
  add_job_options(options, job);
  options.add("out", out, "FILE", "write to FILE, which must not exist");
  if (!options.parse(args)) return kDone;
  cluster::check_scheduler(scheduler, "lockstep render", "use pbs or slurm");
  const auto site = submit::find_site(job, scheduler);
  submit::check_config(job, site);
  const auto text = cluster::render(site, job);
  if (out.empty()) {
    output::print(text);
    output::check();
    return kDone;
  }
  std::error_code error;
  if (std::filesystem::is_regular_file(out, error))  // which a user may have edited
    throw InputError("the output file already exists", out, "remove it, or choose another --out");
  base::check_output(out, kChooseOutHint);
  base::write_output(out, text, kChooseOutHint);
  return kDone;
}

namespace {

void list_sites() {
  for (const auto& [name, site] : cluster::known_sites()) {
    const auto what = site.trouble.empty() ? site.about : "cannot be read: " + site.trouble;
    output::line(format("{:<12} {:<6} {}{}", name, site.scheduler, what,
                        site.is_shipped ? "" : format(" ({})", site.path)));
  }
  output::line("folders: " + base::join(cluster::site_folders(), ", "));
}

void show_site(const std::string& name) {
  if (name.empty())
    throw InputError("missing argument NAME", "lockstep site show",
                     "run lockstep site list to see the names");
  const auto site = cluster::load_site(name);
  output::line("# " + site.path);
  output::print(base::readable(base::read_text(site.path)));
}

}  // namespace

int run_site(const std::vector<std::string>& args) {
  std::string action, name, scheduler;
  Options options(
      "site", "lists known clusters, or writes a site file for this one",
      {"lockstep site list", "lockstep site show gadi", "lockstep site detect > sites/mine.yaml"});
  options.positional("list|show|detect|keys", action,
                     "list the known sites, show NAME, detect this cluster and print a site file for it, or "
                     "print the reference of a site file's keys");
  options.positional("NAME", name, "for show: a site by name, or the path of its file", false);
  options.add("scheduler", scheduler, "slurm|pbs", "for detect: the scheduler, if both are installed");
  if (!options.parse(args)) return kDone;
  if (action == "list")
    list_sites();
  else if (action == "show")
    show_site(name);
  else if (action == "detect")
    output::print(cluster::detect_site(scheduler));
  else if (action == "keys")
    output::print(cluster::site_reference());
  else
    throw InputError(format("unknown action '{}'", base::printable(action)), "lockstep site",
                     "use list, show, detect or keys");
  output::check();
  return kDone;
}

namespace {

constexpr int64_t kMostLinks = 100;

}  // namespace

int run_submit(const std::vector<std::string>& args) {
  cluster::JobRequest job;
  std::string scheduler;
  std::vector<std::string> sweeps;
  int64_t links = 1;
  bool wait = false, dry_run = false;
  Options options(
      "submit", "submits a training job, a chain of jobs or a parameter sweep",
      {"lockstep submit configs/mnist.yaml --nodes 2 --time 1h --wait",
       "lockstep submit configs/mnist.yaml --site gadi --account a00 --chain 5 --dry-run",
       "lockstep submit configs/pima.yaml --sweep optim.lr=0.1,0.01 --sweep run.seed=0..4 --wait"});
  options.positional("CONFIG.yaml", job.config, "the config file");
  options.add("scheduler", scheduler, "NAME",
              "pbs or slurm (default: the site's, or the one that is installed)");
  add_job_options(options, job);
  options.add("sweep", sweeps, "KEY=VALUES",
              "submit a job array with one run per value (v1,v2 or 0..4); several --sweep options combine");
  options.add("chain", links, "N", "submit N jobs; each resumes the run if the previous job stopped early");
  options.flag("wait", wait, "follow the log and progress until the run ends, and exit with its status");
  options.flag("dry-run", dry_run, "print the command and the script without submitting");
  if (!options.parse(args)) return kDone;
  const auto self = launch::rank_by_environment(launch::current_environment());
  if (self.world > 1 && self.rank > 0) return kDone;  // one job, whatever started this program
  if (!scheduler.empty()) cluster::check_scheduler(scheduler, "--scheduler", "use pbs or slurm");
  if (links < 1 || links > kMostLinks)
    throw InputError(format("--chain must be from 1 to {} (got {})", kMostLinks, links), "lockstep submit",
                     "use --chain 5");
  if (links > 1 && !sweeps.empty())
    throw InputError("--chain and --sweep cannot be combined", "lockstep submit",
                     "omit --chain; sweep tasks restart on their own if they stop early");
  auto plan = submit::make_plan(job, scheduler, sweeps, links);
  if (sweeps.empty())
    plan.command =
        format("cd {} && {} submit {}", cluster::quoted(std::filesystem::current_path().string()),
               cluster::quoted(std::filesystem::canonical("/proc/self/exe").string()), cluster::quoted(args));
  if (dry_run) {
    output::print(submit::commands_and_scripts(plan));
    output::check();
    return kDone;
  }
  const auto submission = submit::submit_all(plan);
  return wait ? submit::wait_for(submission) : kDone;
}

}  // namespace lockstep::cli
