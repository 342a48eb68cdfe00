#pragma once
// What a command that joins a job is given, without a torch header in sight.

#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/job.h"

namespace lockstep::train {

/// What stands on its command line.
struct Command {
  std::string config;
  std::vector<std::string> sets;
  std::string launcher = "auto";
  bool trace = false;                                           // train.trace, where the config has none
  std::string program;                                          // version and commit
  std::vector<std::pair<std::string, std::string>> must_match;  // what else has to be the same on all ranks
  bool elsewhere = false;    // the config is of a run, whose GPUs need not be here
  bool whole_model = false;  // each rank takes it, whatever `parallel` says
};

/// Starts this program again as the ranks of a job on this machine, and returns the job's exit status.
int start_ranks(const Job& alone, int ranks);

}  // namespace lockstep::train
