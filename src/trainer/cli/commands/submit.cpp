// lockstep submit CONFIG: the job that trains it, handed to the scheduler; and waited for, in a chain, or as
// a sweep.
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/leave.h"
#include "tools/cluster/detect.h"
#include "tools/cluster/scheduler.h"
#include "tools/cluster/site.h"
#include "tools/submit/submission.h"
#include "trainer/cli/command_group.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {

// lockstep render pbs|slurm CONFIG: the job script, for a site, on standard output or into a file.

namespace {

// a script that somebody has edited is not replaced
void write_new(const std::string& path, const std::string& text) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error))
    throw InputError("there is a file of this name already", path, "remove it, or choose another --out");
  base::check_output(path, kElsewhere);
  base::write_output(path, text, kElsewhere);
}

}  // namespace

int run_render(const std::vector<std::string>& args) {
  std::string scheduler, out;
  submit::WantedJob job;
  Options options(
      "render", "the job script that trains a config, as a site wants it",
      {"lockstep render slurm configs/mnist.yaml --nodes 2 > job.slurm",
       "lockstep render pbs configs/mnist.yaml --site gadi --account a00 --gpus-per-node 4 --time 2h"});
  options.positional("pbs|slurm", scheduler, "the scheduler");
  options.positional("CONFIG.yaml", job.config, "the config file");
  add_job_options(options, job);
  options.add("out", out, "FILE", "write it there (never over a file)");
  if (!options.parse(args)) return kDone;
  cluster::check_scheduler(scheduler, "lockstep render",
                           "lockstep render pbs CONFIG, or lockstep render slurm CONFIG");
  const auto site = submit::find_site(job, scheduler);
  const auto text = cluster::render(site, submit::request(job, site));
  submit::say_which(site);
  if (out.empty()) {
    output::print(text);
    output::check();
  } else {
    write_new(out, text);
  }
  return kDone;
}

// lockstep site list|show|detect|keys: what is known of clusters, and a proposal for this one.

namespace {

/// What the command line names besides the action.
struct Named {
  std::string site, scheduler;
};

int list_sites(const Named&) {
  for (const auto& site : cluster::known_sites()) {
    const auto what =
        site.trouble.empty() ? site.about : format("cannot be read: {} ({})", site.trouble, site.where);
    const auto place = site.hides.empty() ? "" : format(" ({}, before lockstep's own)", site.path);
    output::line(format("{:<12} {:<6} {}{}", site.name, site.scheduler, what, place));
  }
  output::line("looked for in " + base::join(cluster::site_folders(), ", "));
  output::check();
  return kDone;
}

int show_site(const Named& named) {
  const auto& name = named.site;
  if (name.empty()) throw InputError("which site?", "lockstep site show", "lockstep site list names them");
  const auto site = cluster::load_site(name);
  if (!site.hides.empty())
    log::warning(format("{} counts, not {}, which ships with lockstep", site.path, site.hides));
  output::line("# " + site.path);
  output::print(base::readable(base::read_text(site.path)));
  output::check();
  return kDone;
}

int detect(const Named& named) {
  output::print(cluster::detect_site(named.scheduler));
  output::check();
  return kDone;
}

int keys(const Named&) {
  output::print(cluster::site_reference());
  output::check();
  return kDone;
}

struct SiteAction {
  const char* name;
  int (*run)(const Named&);
};
constexpr SiteAction kSiteActions[] = {
    {"list", list_sites}, {"show", show_site}, {"detect", detect}, {"keys", keys}};

}  // namespace

int run_site(const std::vector<std::string>& args) {
  std::string action;
  Named named;
  Options options(
      "site", "what is known of clusters, and a proposal for this one",
      {"lockstep site list", "lockstep site show gadi", "lockstep site detect > sites/mine.yaml"});
  options.positional("list|show|detect|keys", action, "what to do");
  options.positional("NAME", named.site, "for show: a site by name, or the path of its file", false);
  options.add("scheduler", named.scheduler, "slurm|pbs", "for detect: whom to ask where both are");
  if (!options.parse(args)) return kDone;
  for (const auto& row : kSiteActions) {
    if (action == row.name) return row.run(named);
  }
  throw InputError(format("site cannot '{}'", base::printable(action)), "lockstep site",
                   "lockstep site list, show, detect or keys");
}

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
  if (submit::Interrupts::came()) return detach(submission);
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

// main starts lockstep-job before anything else (become_job in main.cpp); this runs where that program is
// missing.
int run_job(const std::vector<std::string>&) {
  throw InputError("lockstep-job is missing", "the folder of this program", "install lockstep again, whole");
}

}  // namespace lockstep::cli
