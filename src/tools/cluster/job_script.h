#pragma once
// A job's script: what the scheduler is asked for, and one call of lockstep job train, every word of it
// quoted.

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/cluster/site.h"

namespace lockstep::cluster {

/// What somebody wants to run, and on how much. 0 or empty = as the site has it.
struct JobRequest {
  std::string config;                                // as it was named
  std::vector<std::string> sets = {};                // "optim.lr=0.1"
  std::vector<std::vector<std::string>> sweep = {};  // an array: the further --set of each of its tasks
  std::string name = "lockstep";                     // of the job
  int64_t nodes = 1;
  int64_t gpus_per_node = -1;  // -1 = all that the queue's nodes have
  int64_t ranks_per_node = 0;  // 0 = one a GPU; without GPUs, the queue's, else 2
  int64_t cores_per_rank = 0;
  std::chrono::milliseconds time{std::chrono::minutes(30)};
  std::string queue = {};
  std::string account = {};
  std::string storage = {};
  std::string dependency = {};  // "afternotok:123", as both schedulers write it
  std::vector<std::pair<std::string, std::string>> variables = {};  // exported before lockstep is started
  std::string home = {};  // LOCKSTEP_HOME; empty = base::home_folder()
};

/// What a job is given; nothing of it is left open.
struct Resources {
  Queue queue;
  int64_t nodes = 1;
  int64_t gpus = 0, ranks = 1, cores = 1;  // of a node; cores by the site's rule
  int64_t cores_per_rank = 1;
};

/// What was asked for, filled up from the site. InputError, with the limit, for what the site cannot give.
Resources resources(const Site& site, const JobRequest& request);

/// The whole script. InputError for what the site cannot give, and for a text that could not stand in a
/// directive as it is.
std::string render(const Site& site, const JobRequest& request);

}  // namespace lockstep::cluster
