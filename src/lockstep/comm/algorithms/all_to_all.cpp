// Everybody sends everybody everything, and all add in rank order. One latency in all: nothing is faster for
// a few bytes, nothing slower for many.
#include "lockstep/comm/algorithms/algorithm.h"

namespace lockstep::algorithms {

void all_to_all(Messenger& messenger, const Numbers& numbers) {
  const int rank = messenger.rank(), world = messenger.world();
  std::vector<std::vector<std::byte>> theirs(static_cast<std::size_t>(world));
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  std::vector<const std::byte*> in_rank_order;
  for (int other = 0; other < world; ++other) {
    auto& place = theirs[static_cast<std::size_t>(other)];
    if (other != rank) {
      place.resize(numbers.bytes().size());
      out.push_back({other, numbers.bytes()});
      in.push_back({other, place});
    }
    in_rank_order.push_back(other == rank ? numbers.data : place.data());
  }
  messenger.exchange(out, in);
  if (world > 1 && numbers.items > 0)
    numbers.operation.combine(in_rank_order.data(), in_rank_order.size(), numbers.data, numbers.items);
}

}  // namespace lockstep::algorithms
