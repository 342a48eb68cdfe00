#pragma once
// Ranks as threads of this process, so that an algorithm runs without a launcher.

#include <functional>
#include <vector>

#include "lockstep/comm/algorithms/messenger.h"

namespace lockstep {

/// Runs `body` once per rank, each on its own thread; rank r is on node nodes[r]. A send waits for its
/// receiver, as over a network. The first exception ends all waits and is thrown. If all ranks wait, or one
/// waits for ten seconds, the exception says which rank waits for which.
void run_as_ranks(const std::vector<int>& nodes, const std::function<void(Messenger&)>& body);
/// The same with all ranks on one node.
void run_as_ranks(int world, const std::function<void(Messenger&)>& body);

}  // namespace lockstep
