#pragma once
// Where the team's ranks share a node, and so its memory.

#include "lockstep/data/node_share.h"
#include "lockstep/parallel/team.h"

namespace lockstep::train {

/// For one load. The team must outlive it. Collective.
NodeShare node_share(const Team& team);

}  // namespace lockstep::train
