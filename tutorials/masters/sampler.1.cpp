//@ title      Distribute samples by hand
//@ hint       Write down which rank takes which of 10 samples if 3 ranks take turns. Which ranks get fewer?
//@ hint       Rank r takes the indices r, r + world, r + 2 * world, ... How many must each rank take?
//@ hint       Each takes (size + world - 1) / world indices. An index of `size` or more starts again at the front: index % size.
#include <lockstep/workshop.h>

// What DistributedSampler does without shuffling. The ranks take turns along the list of samples:
//
//   10 samples, 2 ranks:   rank 0: 0 2 4 6 8     rank 1: 1 3 5 7 9
//
// Every rank gets the same number of samples. If they cannot be divided evenly, the list continues from its start:
// ranks with too few take sample 0, then 1, and so on, a second time.

std::vector<int64_t> share_of(int64_t rank, int64_t world, int64_t size) {
  std::vector<int64_t> mine;
  //@ todo
  // TODO: return only the samples of this rank. At present it returns all samples.
  (void)rank, (void)world;
  for (int64_t sample = 0; sample < size; ++sample) mine.push_back(sample);
  //@ solution
  const int64_t count = (size + world - 1) / world;
  for (int64_t turn = 0; turn < count; ++turn) mine.push_back((rank + turn * world) % size);
  //@ wrong once
  const int64_t count = (size + world - 1) / world;
  for (int64_t turn = 0; turn < count; ++turn) {
    const int64_t place = rank + turn * world;
    mine.push_back(place < size ? place : place - size);
  }
  //@ wrong short
  for (int64_t sample = rank; sample < size; sample += world) mine.push_back(sample);
  //@ wrong cut
  for (int64_t turn = 0; turn < size / world; ++turn) mine.push_back(rank + turn * world);
  //@ wrong overrun
  const int64_t count = (size + world - 1) / world;
  for (int64_t turn = 0; turn < count; ++turn) mine.push_back(rank + turn * world);
  //@ wrong blocks: ranks take turns
  const int64_t count = (size + world - 1) / world;
  for (int64_t turn = 0; turn < count; ++turn) mine.push_back((rank * count + turn) % size);
  //@ wrong nothing
  (void)rank, (void)world, (void)size;
  //@ wrong step
  const int64_t count = (size + world - 1) / world;
  for (int64_t turn = 0; turn < count; ++turn) mine.push_back((rank + turn * (world + 1)) % size);
  //@ wrong one_more
  for (int64_t turn = 0; turn < size / world + 1; ++turn) mine.push_back((rank + turn * world) % size);
  //@ wrong own_first
  const int64_t count = (size + world - 1) / world;
  for (int64_t turn = 0; turn < count; ++turn) {
    const int64_t place = rank + turn * world;
    mine.push_back(place < size ? place : rank % size);
  }
  //@ wrong held
  const int64_t count = (size + world - 1) / world;
  for (int64_t turn = 0; turn < count; ++turn) mine.push_back(std::min(rank + turn * world, size - 1));
  //@ end
  return mine;
}

int main() {
  return lockstep::run([] {
    lockstep::Session session;
    for (const int64_t size : {12, 10, 2, 1})
      lockstep::show("of " + std::to_string(size), share_of(session.rank(), session.world(), size));
  });
}
