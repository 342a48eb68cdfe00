#include <lockstep/workshop.h>

// What DistributedSampler does, without the shuffle. The ranks take turns along the list of samples:
//
//   10 samples, 2 ranks:   rank 0: 0 2 4 6 8     rank 1: 1 3 5 7 9
//
// Every rank gets the same number of samples. Where they do not divide, the list goes on from its front: the
// ranks that would be short take sample 0, then 1, and so on, a second time.

std::vector<int64_t> share_of(int64_t rank, int64_t world, int64_t size) {
  std::vector<int64_t> mine;
  // TODO: only the samples of this rank. For now it takes them all.
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
