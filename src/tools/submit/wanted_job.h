#pragma once
// A job as somebody asks for it, and what a scheduler's site makes of it.

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cluster/job_script.h"
#include "trainer/config/load.h"

namespace lockstep::submit {

struct WantedJob {
  std::string config = {};  // the file's path
  std::string site = {};    // a name or a file's path; empty = the generic one of the scheduler
  std::string name = "lockstep", time = {}, queue = {}, account = {}, storage = {};
  int64_t nodes = 1, ranks_per_node = 0, cores_per_rank = 0;
  int64_t gpus_per_node = -1;  // all that the site's have
  std::vector<std::string> sets = {};
};

/// The site that was named, or the generic one of the scheduler ("pbs", "slurm"). InputError where the two
/// do not agree.
cluster::Site find_site(const WantedJob& job, const std::string& scheduler);

/// The config with the job's settings and `more`, in an environment as a job has it.
config::Loaded load(const WantedJob& job, const cluster::Site& site,
                    const std::vector<std::string>& more = {});

/// The config's run.dir, or ./runs where only a job knows it (${PBS_JOBFS}/runs).
std::string shared_run_dir(const WantedJob& job, const cluster::Site& site);

/// What to render. A config that is wrong is an error at once.
cluster::JobRequest request(const WantedJob& job, const cluster::Site& site);

/// Says which site file was taken, and warns where it came before one that ships with lockstep.
void say_which(const cluster::Site& site);

}  // namespace lockstep::submit
