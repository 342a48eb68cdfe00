// Pairs swap halves and each adds one, then quarters, and so on, until each rank has its share of the sum;
// the way back puts the shares together. A ring's bytes in log2(P) rounds each way (Rabenseifner 2004).
#include "lockstep/comm/algorithms/pairs.h"

namespace lockstep::algorithms {
namespace {

struct Range {
  std::size_t begin, end;
};

struct Halves {
  Range kept, given;
};

// The lower of two keeps the lower half.
Halves halved(Range range, bool lower) {
  const std::size_t middle = range.begin + (range.end - range.begin) / 2;
  const Range low{range.begin, middle}, high{middle, range.end};
  return lower ? Halves{low, high} : Halves{high, low};
}

}  // namespace

void halving_doubling(Messenger& messenger, const Numbers& numbers) {
  Pairs pairs(messenger, numbers);
  pairs.fold();
  const int own = pairs.number();
  std::vector<std::byte> theirs(numbers.bytes().size());
  std::vector<Halves> way;
  Range range{0, numbers.items};
  for (int distance = pairs.size() / 2; own >= 0 && distance > 0; distance /= 2) {
    const int other = own ^ distance, rank = pairs.rank_of(other);
    way.push_back(halved(range, own < other));
    const auto [kept, given] = way.back();
    const auto mine = numbers.part(kept.begin, kept.end);
    const std::span<std::byte> place(theirs.data(), mine.bytes().size());
    messenger.exchange({rank, numbers.bytes(given.begin, given.end)}, {rank, place});
    mine.add(place);
    range = kept;
  }
  for (int distance = 1; own >= 0 && distance < pairs.size(); distance *= 2) {
    const int rank = pairs.rank_of(own ^ distance);
    const auto [kept, given] = way.back();
    way.pop_back();
    messenger.exchange({rank, numbers.bytes(kept.begin, kept.end)},
                       {rank, numbers.bytes(given.begin, given.end)});
  }
  pairs.unfold();
}

}  // namespace lockstep::algorithms
