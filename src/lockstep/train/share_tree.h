#pragma once
// Trees between ranks: a checkpoint that rank 0 has read, on every rank, and what each rank has, on rank 0.

#include <functional>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"

namespace lockstep::train {

/// What rank 0's `read` returns, on every rank; its error, too. Collective.
Tree share_tree(const Team& team, const std::function<Tree()>& read);

/// Every rank's, in rank order, on rank 0; nothing elsewhere. Collective.
std::vector<Tree> gather_trees(const Team& team, const Tree& own);

}  // namespace lockstep::train
