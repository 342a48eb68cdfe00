#include <lockstep/workshop.h>

// Each rank has worked on other samples and has a loss of its own. The log wants one number: the mean over all
// ranks, the same on every rank.

double mean_over_ranks(const lockstep::Session& session, double loss) {
  // TODO: the mean over all ranks
  (void)session;
  return loss;
}

// LOSSES: of rank 0, of rank 1, ...; without them 1, 2, ...
int main(int count, char** words) {
  return lockstep::run([&] {
    lockstep::Session session;
    const int place = 1 + session.rank();
    const double loss = place < count ? std::stod(words[place]) : place;
    lockstep::show("mean", mean_over_ranks(session, loss));
  });
}
