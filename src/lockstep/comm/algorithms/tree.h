#pragma once
// A binomial tree over some of the ranks: up to the first of them, and down from it.

#include "lockstep/comm/algorithms/algorithm.h"

namespace lockstep::algorithms {

/// members[0] has the sum of all members' numbers in the end. Who is no member does not call it.
void reduce_to_first(Messenger& messenger, const Numbers& numbers, const std::vector<int>& members);
/// All members have members[0]'s numbers.
void broadcast_from_first(Messenger& messenger, const Numbers& numbers, const std::vector<int>& members);

}  // namespace lockstep::algorithms
