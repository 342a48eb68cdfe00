#pragma once
// Trees between ranks: a checkpoint that rank 0 has read, on every rank, and what each rank has, on rank 0.
// They travel between the CPUs where the group can, and a rank holds one piece beside the trees.

#include <functional>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"
#include "lockstep/parallel/trees/stretches.h"

namespace lockstep::parallel {

/// What rank 0's `read` returns, on every rank; its error, too. `piece`: the most bytes under way.
/// Collective.
Tree share_tree(const Team& team, const std::function<Tree()>& read, int64_t piece = kInFlight);

/// Every rank's, in rank order, on rank 0; nothing elsewhere. Rank after rank, so that nobody holds more than
/// one beside what rank 0 puts together. Collective.
std::vector<Tree> gather_trees(const Team& team, const Tree& own, int64_t piece = kInFlight);

}  // namespace lockstep::parallel
