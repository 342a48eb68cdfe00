#pragma once
// One config for the whole job: 10,000 ranks do not open a file 10,000 times, and a mistake is met by all
// alike.

#include <string>
#include <vector>

#include "lockstep/comm/meet/join.h"
#include "lockstep/launch/process/runtime.h"
#include "trainer/config/load.h"

namespace lockstep::train {

/// Names the descriptor from which a carried rank reads what its carrier has read.
constexpr const char* kHandedConfig = "LOCKSTEP_CONFIG_FD";

struct JobConfig {
  config::Loaded loaded;
  std::string shared;  // what it was made of: the text, and the variables that it names
};

/// With MPI rank 0 reads the file and the environment variables that it names, and the others get both;
/// without MPI each rank reads its own. Libraries that it names are not loaded. `data.stage` alone is
/// expanded with each rank's own environment. An error of rank 0 is thrown on every rank, in the same words.
/// A carried rank has what its carrier has.
JobConfig load_for_job(const launch::Runtime& runtime, const std::string& path,
                       const std::vector<std::string>& sets);

/// launch.launcher, where each rank reads the file for itself: it decides whether there is MPI at all.
std::string launcher_in(const std::string& path, const std::vector<std::string>& sets);

/// What has to be the same on all ranks of a run, key by key; not where each finds its files.
comm::Facts facts_of(const Settings& settings);

}  // namespace lockstep::train
