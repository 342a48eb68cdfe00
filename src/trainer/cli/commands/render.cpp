// lockstep render pbs|slurm CONFIG: the job script, for a site, on standard output or into a file.
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "tools/cluster/scheduler.h"
#include "trainer/cli/job_options.h"

namespace lockstep::cli {
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

}  // namespace lockstep::cli
