// Each rank talks to its two neighbours alone. Once round, and each rank has one finished chunk; once more,
// and all have all of them. However many ranks there are, each sends the data not quite twice: the best there
// is for many bytes (Patarasuk and Yuan 2009). Latencies add up with the ranks.
#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/comm/algorithms/gloo_chunks.h"

namespace lockstep::algorithms {
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

}  // namespace lockstep::algorithms
