#pragma once
// Alpha, beta and gamma of this machine: what the cost formulas are fed with.

#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/parallel/team.h"

namespace lockstep::bench {

/// By a ping-pong of a small and of a large message over the lines of a group that carries an algorithm,
/// between rank 0 and the first rank of another node, or rank 1; and by adding numbers. Collective.
Network measure_network(const Team& team, const ProcessGroup& group);

}  // namespace lockstep::bench
