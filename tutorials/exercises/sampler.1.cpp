#include <lockstep/workshop.h>

// What DistributedSampler does without shuffling. The ranks take turns along the list of samples:
//
//   10 samples, 2 ranks:   rank 0: 0 2 4 6 8     rank 1: 1 3 5 7 9
//
// Every rank gets the same number of samples. If they cannot be divided evenly, the list continues from its start:
// ranks with too few take sample 0, then 1, and so on, a second time.

std::vector<int64_t> share_of(int64_t rank, int64_t world, int64_t size) {
  std::vector<int64_t> mine;
  // TODO: return only the samples of this rank. At present it returns all samples.
  (void)rank, (void)world;
  for (int64_t sample = 0; sample < size; ++sample) mine.push_back(sample);
  return mine;
}

int main() {
  return lockstep::run([] {
    lockstep::Session session;
    for (const int64_t size : {12, 10, 2, 1})
      lockstep::show("of " + std::to_string(size), share_of(session.rank(), session.world(), size));
  });
}
