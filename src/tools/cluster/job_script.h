#pragma once
// A job script: directives for the scheduler, and one call of lockstep job train. Sweeps, too.

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/cluster/site.h"

namespace lockstep::cluster {

/// The job that a user requests. 0 or empty = the site's default.
struct JobRequest {
  std::string config;                                ///< the path as it was given
  std::string site = {};                             ///< a name, or a file's path
  std::vector<std::string> sets = {};                ///< "optim.lr=0.1"
  std::vector<std::vector<std::string>> sweep = {};  ///< an array: the additional --set of each task
  std::string name = "lockstep";
  int64_t nodes = 1;
  int64_t gpus_per_node = -1;  ///< -1 = all of the queue's nodes
  int64_t ranks_per_node = 0;  ///< 0 = one per GPU; without GPUs, the queue's, or 2
  int64_t cores_per_rank = 0;
  std::string time = "30m", queue = {}, account = {}, storage = {};
  std::string dependency = {};  ///< "afternotok:123", as both schedulers write it
  std::vector<std::pair<std::string, std::string>> variables = {};  ///< exported by the script
};

/// What a job gets.
struct Resources {
  Queue queue;
  std::chrono::milliseconds time{0};
  int64_t nodes = 1;
  int64_t gpus = 0, ranks = 1, cores = 1;  ///< of a node
  int64_t cores_per_rank = 1;
};

/// The request, completed from the site. InputError, with the limit, for what the site cannot provide.
Resources resources(const Site& site, const JobRequest& request);

/// The script. InputError for what the site cannot provide, and for a text that is not safe in a directive.
std::string render(const Site& site, const JobRequest& request);

/// The settings of each task of a sweep: every combination of "optim.lr=0.1,0.01", "run.seed=0..4", and a
/// run.name that starts with `run`. A comma in [], {} or quotes separates nothing. InputError for a wrong
/// or repeated key, and for more than 1000 tasks.
std::vector<std::vector<std::string>> sweep_tasks(const std::vector<std::string>& sweeps,
                                                  const std::string& run);

}  // namespace lockstep::cluster
