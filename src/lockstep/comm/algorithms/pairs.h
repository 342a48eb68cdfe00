#pragma once
// Algorithms by pairs want a power of two: the ranks that are too many give their numbers to a neighbour
// first, and get the sum in the end.

#include <bit>

#include "lockstep/comm/algorithms/algorithm.h"

namespace lockstep::algorithms {

class Pairs {
 public:
  Pairs(Messenger& messenger, const Numbers& numbers)
      : messenger_(messenger),
        numbers_(numbers),
        size_(static_cast<int>(std::bit_floor(static_cast<unsigned>(messenger.world())))),
        too_many_(messenger.world() - size_) {}

  /// A power of two.
  int size() const { return size_; }
  /// This rank's number among those that go on; -1: it waits.
  int number() const {
    const int rank = messenger_.rank();
    if (rank >= 2 * too_many_) return rank - too_many_;
    return rank % 2 == 0 ? rank / 2 : -1;
  }
  /// The rank of a number.
  int rank_of(int number) const { return number < too_many_ ? 2 * number : number + too_many_; }

  /// Ranks 1, 3, 5, ... give theirs to the one before them.
  void fold() {
    const int rank = messenger_.rank();
    if (rank >= 2 * too_many_) return;
    if (rank % 2 == 1) return messenger_.send(rank - 1, numbers_.bytes());
    std::vector<std::byte> theirs(numbers_.bytes().size());
    messenger_.receive(rank + 1, theirs);
    numbers_.add(theirs);
  }
  /// ... and get the sum from it.
  void unfold() {
    const int rank = messenger_.rank();
    if (rank >= 2 * too_many_) return;
    rank % 2 == 1 ? messenger_.receive(rank - 1, numbers_.bytes())
                  : messenger_.send(rank + 1, numbers_.bytes());
  }

 private:
  Messenger& messenger_;
  const Numbers& numbers_;
  int size_;
  int too_many_;
};

}  // namespace lockstep::algorithms
