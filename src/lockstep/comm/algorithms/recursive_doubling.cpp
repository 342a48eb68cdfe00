// Pairs swap everything and add; then pairs of pairs, and so on: after log2(P) rounds all have the sum. The
// fewest rounds for few bytes (Thakur, Rabenseifner and Gropp 2005).
#include "lockstep/comm/algorithms/pairs.h"

namespace lockstep::algorithms {

void recursive_doubling(Messenger& messenger, const Numbers& numbers) {
  Pairs pairs(messenger, numbers);
  pairs.fold();
  const int own = pairs.number();
  std::vector<std::byte> theirs(numbers.bytes().size());
  for (int distance = 1; own >= 0 && distance < pairs.size(); distance *= 2) {
    const int other = own ^ distance, rank = pairs.rank_of(other);
    messenger.exchange({rank, numbers.bytes()}, {rank, theirs});
    own < other ? numbers.add(theirs) : numbers.add_to(theirs);  // both in one order: the same bits
  }
  pairs.unfold();
}

}  // namespace lockstep::algorithms
