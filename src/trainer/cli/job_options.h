#pragma once
// The options by which a job is described, for every command that writes or submits one.

#include "tools/submit/wanted_job.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {

/// --site, --nodes, --gpus-per-node, ..., --set, into `job`, which outlives the options.
void add_job_options(Options& options, submit::WantedJob& job);

}  // namespace lockstep::cli
