// The all-reduce algorithms, message by message.
#include <bit>
#include <map>
#include <numeric>

#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/comm/algorithms/gloo_chunks.h"

namespace lockstep::algorithms {
namespace {

// Algorithms by pairs want a power of two: the ranks that are too many give their numbers to a neighbor
// first, and get the sum in the end.
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

// A binomial tree over some of the ranks: up to the first of them, and down from it.

int place_of(const Messenger& messenger, const std::vector<int>& members) {
  return static_cast<int>(std::find(members.begin(), members.end(), messenger.rank()) - members.begin());
}

int member(const std::vector<int>& members, int place) {
  return members.at(static_cast<std::size_t>(place));
}

// In round k those whose place has k as its lowest bit give theirs to the one k before them.
/// members[0] has the sum of all members' numbers in the end. Who is no member does not call it.
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
/// All members have members[0]'s numbers.
void broadcast_from_first(Messenger& messenger, const Numbers& numbers, const std::vector<int>& members) {
  const int place = place_of(messenger, members), size = static_cast<int>(members.size());
  int bit = 1;
  while (bit < size && !(place & bit)) bit *= 2;
  if (place > 0) messenger.receive(member(members, place - bit), numbers.bytes());
  for (bit /= 2; bit > 0; bit /= 2)
    if (place + bit < size) messenger.send(member(members, place + bit), numbers.bytes());
}

}  // namespace

// Up a binomial tree to rank 0, and down again: log2(P) rounds each way, of everything each.
void tree(Messenger& messenger, const Numbers& numbers) {
  std::vector<int> all(static_cast<std::size_t>(messenger.world()));
  std::iota(all.begin(), all.end(), 0);
  reduce_to_first(messenger, numbers, all);
  broadcast_from_first(messenger, numbers, all);
}

// Everybody sends everybody everything, and all add in rank order. One latency in all: nothing is faster for
// a few bytes, nothing slower for many.

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

// Pairs swap everything and add; then pairs of pairs, and so on: after log2(P) rounds all have the sum. The
// fewest rounds for few bytes (Thakur, Rabenseifner and Gropp 2005).

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

// Pairs swap halves and each adds one, then quarters, and so on, until each rank has its share of the sum;
// the way back puts the shares together. A ring's bytes in log2(P) rounds each way (Rabenseifner 2004).

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

// Everybody's numbers to rank 0, which adds them in rank order and sends everybody the sum. Simple, and all
// of it goes through one rank's line.

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

// Each rank talks to its two neighbors alone. Once round, and each rank has one finished chunk; once more,
// and all have all of them. However many ranks there are, each sends the data not quite twice: the best there
// is for many bytes (Patarasuk and Yuan 2009). Latencies add up with the ranks.

namespace {

// Cut where gloo's ring cuts, and added in its order, so that the sums have the same bits.
struct Chunks {
  Chunks(const Numbers& numbers, int world)
      : numbers_(numbers),
        world_(world),
        items_(gloo_chunk(numbers.items, numbers.operation.item_bytes, world)) {}
  // The last ones may be short, or empty.
  Numbers of(int index) const {
    const auto at = static_cast<std::size_t>((index + 2 * world_) % world_);
    return numbers_.part(std::min(numbers_.items, at * items_), std::min(numbers_.items, (at + 1) * items_));
  }
  std::size_t bytes() const { return items_ * numbers_.operation.item_bytes; }

 private:
  const Numbers& numbers_;
  int world_;
  std::size_t items_;
};

}  // namespace

void ring(Messenger& messenger, const Numbers& numbers) {
  const int rank = messenger.rank(), world = messenger.world();
  if (world == 1) return;
  const int to = (rank + world - 1) % world, from = (rank + 1) % world;
  const Chunks chunks(numbers, world);
  std::vector<std::byte> theirs(chunks.bytes());
  for (int step = 1; step < world; ++step) {  // a chunk goes round and grows; at the end rank r has chunk r
    const Numbers mine = chunks.of(rank + step + 1);
    const std::span<std::byte> place(theirs.data(), mine.bytes().size());
    messenger.exchange({to, chunks.of(rank + step).bytes()}, {from, place});
    mine.add(place);
  }
  for (int step = 0; step < world - 1; ++step)  // the finished chunks go round
    messenger.exchange({to, chunks.of(rank + step).bytes()}, {from, chunks.of(rank + step + 1).bytes()});
}

// First within each node to its first rank, then a ring over these, then within the nodes again: only one
// rank of a node uses the network. Nodes may have different numbers of ranks.

namespace {

// A part of the ranks, renumbered.
class Subgroup : public Messenger {
 public:
  Subgroup(Messenger& all, const std::vector<int>& members) : all_(all), members_(members) {}
  int rank() const override {
    return static_cast<int>(std::find(members_.begin(), members_.end(), all_.rank()) - members_.begin());
  }
  int world() const override { return static_cast<int>(members_.size()); }

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::vector<Outgoing> sent(out.begin(), out.end());
    std::vector<Incoming> received(in.begin(), in.end());
    for (auto& message : sent) message.to = members_[static_cast<std::size_t>(message.to)];
    for (auto& message : received) message.from = members_[static_cast<std::size_t>(message.from)];
    all_.exchange(sent, received);
  }

 private:
  Messenger& all_;
  const std::vector<int>& members_;
};

}  // namespace

void two_level(Messenger& messenger, const Numbers& numbers) {
  std::map<int, std::vector<int>> nodes;
  for (int rank = 0; rank < messenger.world(); ++rank) nodes[messenger.node_of(rank)].push_back(rank);
  std::vector<int> firsts;
  for (const auto& [node, ranks] : nodes) firsts.push_back(ranks[0]);
  const auto& mates = nodes[messenger.node_of(messenger.rank())];
  reduce_to_first(messenger, numbers, mates);
  if (messenger.rank() == mates[0]) {
    Subgroup leaders(messenger, firsts);
    ring(leaders, numbers);
  }
  broadcast_from_first(messenger, numbers, mates);
}

}  // namespace lockstep::algorithms
