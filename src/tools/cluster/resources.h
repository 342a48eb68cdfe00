#pragma once
// What a job is given: what was asked for, filled up from the site, and refused where the site has less.

#include "tools/cluster/job_script.h"

namespace lockstep::cluster {

/// Nothing of it is left open.
struct Resources {
  Queue queue;
  int64_t nodes = 1;
  int64_t gpus = 0, ranks = 1, cores = 1;  // of a node; cores by the site's rule
  int64_t cores_per_rank = 1;
};

/// InputError, with the limit, for what the site cannot give.
Resources resources(const Site& site, const JobRequest& request);

}  // namespace lockstep::cluster
