#pragma once
// A checkpoint that rank 0 has read, on every rank: the file is opened once, wherever it lies.

#include <functional>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"

namespace lockstep::train {

/// What rank 0's `read` returns, on every rank; its error, too. Collective.
Tree share_tree(const Team& team, const std::function<Tree()>& read);

}  // namespace lockstep::train
