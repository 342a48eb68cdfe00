#include <lockstep/workshop.h>

// Each rank has a loss for its own samples. The log needs one number: the mean over all ranks, which is the same on
// every rank.

double mean_over_ranks(const lockstep::Session& session, double loss) {
  // TODO: return the mean over all ranks
  (void)session;
  return loss;
}

// LOSSES: the losses of rank 0, rank 1, ...; by default 1, 2, ...
int main(int count, char** words) {
  return lockstep::run([&] {
    lockstep::Session session;
    const int place = 1 + session.rank();
    const double loss = place < count ? std::stod(words[place]) : place;
    lockstep::show("mean", mean_over_ranks(session, loss));
  });
}
