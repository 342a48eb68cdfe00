#pragma once
// Ranks that are threads of this process: an algorithm can be tried without a launcher.

#include <functional>
#include <vector>

#include "lockstep/comm/algorithms/messenger.h"

namespace lockstep {

/// Runs `body` once a rank, a thread each; rank r is on node nodes[r]. A message waits for its receiver, as
/// over a network. The first exception ends the others' waiting and is thrown. Where all wait, or one for
/// ten seconds, the exception says who waits for whom.
void run_as_ranks(const std::vector<int>& nodes, const std::function<void(Messenger&)>& body);
/// All on one node.
void run_as_ranks(int world, const std::function<void(Messenger&)>& body);

}  // namespace lockstep
