// Up a binomial tree to rank 0, and down again: log2(P) rounds each way, of everything each.
#include "lockstep/comm/algorithms/tree.h"

#include <numeric>

namespace lockstep::algorithms {
namespace {

int place_of(const Messenger& messenger, const std::vector<int>& members) {
  return static_cast<int>(std::find(members.begin(), members.end(), messenger.rank()) - members.begin());
}

int member(const std::vector<int>& members, int place) {
  return members.at(static_cast<std::size_t>(place));
}

}  // namespace

// In round k those whose place has k as its lowest bit give theirs to the one k before them.
void reduce_to_first(Messenger& messenger, const Numbers& numbers, const std::vector<int>& members) {
  const int place = place_of(messenger, members), size = static_cast<int>(members.size());
  std::vector<std::byte> theirs(numbers.bytes().size());
  for (int bit = 1; bit < size; bit *= 2) {
    if (place & bit) return messenger.send(member(members, place - bit), numbers.bytes());
    if (place + bit >= size) continue;
    messenger.receive(member(members, place + bit), theirs);
    numbers.add(theirs);
  }
}

// The same rounds backwards: the farthest first, for its subtree is the deepest.
void broadcast_from_first(Messenger& messenger, const Numbers& numbers, const std::vector<int>& members) {
  const int place = place_of(messenger, members), size = static_cast<int>(members.size());
  int bit = 1;
  while (bit < size && !(place & bit)) bit *= 2;
  if (place > 0) messenger.receive(member(members, place - bit), numbers.bytes());
  for (bit /= 2; bit > 0; bit /= 2) {
    if (place + bit < size) messenger.send(member(members, place + bit), numbers.bytes());
  }
}

void tree(Messenger& messenger, const Numbers& numbers) {
  std::vector<int> all(static_cast<std::size_t>(messenger.world()));
  std::iota(all.begin(), all.end(), 0);
  reduce_to_first(messenger, numbers, all);
  broadcast_from_first(messenger, numbers, all);
}

}  // namespace lockstep::algorithms
