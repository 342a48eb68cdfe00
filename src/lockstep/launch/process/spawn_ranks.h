#pragma once
// One process that runs several ranks (train.as_world, train --ranks): it starts each as a child process,
// forwards signals, and exits with their status.

#include <string>
#include <vector>

#include "lockstep/launch/job.h"

namespace lockstep::launch {

/// Consecutive ranks.
struct RankBlock {
  int first = 0;
  int count = 0;
};

/// The ranks of process `index` of `processes`, as evenly as possible: 8 on 3 are 3, 3 and 2. If there are
/// more processes than ranks, the last ones have none.
RankBlock block_of(int index, int processes, int ranks);

/// Those of all processes: "3+3+2".
std::string blocks_text(int processes, int ranks);

/// The environment of rank `rank` of `world`, which the process of `job` starts: "NAME=value" each.
std::vector<std::string> spawn_settings(const Job& job, int rank, int world, const RankBlock& block);

/// Starts this program again for each rank of the block, with the same arguments and these additional
/// settings, and waits for all. If one fails, the others have a while to exit and are killed then. Returns
/// the exit status of the first that failed, else 75 if one stopped early, else 0; 128 plus the number of a
/// forwarded signal that ended one.
int spawn_ranks(const Job& job, int world, const std::vector<std::string>& settings);

/// A rank that spawn_ranks() started ends with the process that started it. Call it early.
void end_with_spawner();

/// How many ranks the process that started this one runs; 0 = spawn_ranks() did not start this process.
int spawned_rank_count();

}  // namespace lockstep::launch
