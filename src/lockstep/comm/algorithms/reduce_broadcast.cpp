// Everybody's numbers to rank 0, which adds them in rank order and sends everybody the sum. Simple, and all
// of it goes through one rank's line.
#include "lockstep/comm/algorithms/algorithm.h"

namespace lockstep::algorithms {

void reduce_broadcast(Messenger& messenger, const Numbers& numbers) {
  if (messenger.rank() != 0) {
    messenger.send(0, numbers.bytes());
    return messenger.receive(0, numbers.bytes());
  }
  std::vector<std::byte> theirs(numbers.bytes().size());
  std::vector<Outgoing> sums;
  for (int rank = 1; rank < messenger.world(); ++rank) {
    messenger.receive(rank, theirs);
    numbers.add(theirs);
    sums.push_back({rank, numbers.bytes()});
  }
  messenger.exchange(sums, {});
}

}  // namespace lockstep::algorithms
