#pragma once
// One process that stands for several ranks: it starts each as a process of its own, passes signals on, and
// ends as they end.

#include <string>
#include <vector>

#include "lockstep/launch/job.h"

namespace lockstep::launch {

/// Consecutive ranks.
struct RankBlock {
  int first = 0;
  int count = 0;
};

/// The ranks of process `index` of `processes`, as even as can be: 8 on 3 are 3, 3 and 2. Where there are
/// more processes than ranks the last ones have none.
RankBlock block_of(int index, int processes, int ranks);

/// Those of all processes: "3+3+2".
std::string blocks_text(int processes, int ranks);

/// The environment of rank `rank` of `world`, which the process of `job` carries: "NAME=value" each.
std::vector<std::string> settings_of_spawned(const Job& job, int rank, int world, const RankBlock& block);

/// Starts this program once more for each rank of the block, with this process's own arguments and these
/// further settings, and waits for all. Where one fails the rest have a while to say why and leave, and are
/// ended then. Returns the status to leave with: that of the first that failed, else 75 where one stopped
/// early, else 0; 128 and its number where a signal that was passed on ended them.
int spawn_ranks(const Job& job, int world, const std::vector<std::string>& settings);

/// In a rank that another process carries: it ends with that process. To be called early.
void end_with_spawner();

/// How many ranks the process that carries this one has; 0 = this one is carried by none.
int spawned_together();

}  // namespace lockstep::launch
