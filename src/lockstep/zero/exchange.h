#pragma once
// What the ranks tell each other: the elements that each has updated, and their states for a checkpoint.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"
#include "lockstep/zero/shares.h"

namespace lockstep::zero {

/// Every trained parameter as its owners have it. Collective.
void exchange_updates(const Team& team, const Shares& shares, const std::vector<at::Tensor>& params);

/// Every rank's tree on rank 0, in rank order; empty on the others. Collective.
std::vector<Tree> gather_trees(const Team& team, const Tree& own);

}  // namespace lockstep::zero
