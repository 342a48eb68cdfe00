#pragma once
// The options by which a job is described, for every command that writes or submits one.

#include <string>
#include <vector>

#include "tools/cluster/job_script.h"
#include "trainer/cli/options.h"
#include "trainer/config/load.h"

namespace lockstep::cli {

class JobOptions {
 public:
  /// --site, --nodes, --gpus-per-node, ..., --set. They live as long as this does.
  void add_to(Options& options);

  /// The site that was named, or the generic one of the scheduler ("pbs", "slurm"). InputError where the two
  /// do not agree.
  cluster::Site site(const std::string& scheduler) const;

  /// The config with --set and `more`, in an environment as a job has it.
  config::Loaded load(const std::string& config, const cluster::Site& site,
                      const std::vector<std::string>& more = {}) const;

  /// The config's run.dir, or ./runs where only a job knows it (${PBS_JOBFS}/runs).
  std::string shared_run_dir(const std::string& config, const cluster::Site& site) const;

  /// What was asked for, of a config that has been read: a wrong one is an error at once.
  cluster::JobRequest request(const std::string& config, const cluster::Site& site) const;

  /// Says which site file was taken, and warns where it came before one that ships with lockstep.
  static void say_which(const cluster::Site& site);

  const std::string& site_name() const { return site_; }

 private:
  std::string site_, time_, name_ = "lockstep", queue_, account_, storage_;
  int64_t nodes_ = 1, gpus_ = -1, ranks_ = 0, cores_ = 0;
  std::vector<std::string> sets_;
};

}  // namespace lockstep::cli
