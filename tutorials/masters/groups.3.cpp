//@ title      A program that hangs: find out why, and fix it
//@ hint       Which ranks call evaluate()? Which function does evaluate() call?
//@ hint       Only one rank calls a collective under `if (rank == 0)`. The others are already in the next one.
//@ hint       Let every rank call evaluate(), and print the result only on rank 0.
//@ unsolved   two different calls: rank 0 in all-reduce, rank 1 in barrier
#include <lockstep/workshop.h>

// Every rank has classified its own samples, some of them correctly. The accuracy is over all samples of all ranks, so
// it needs a collective.

double evaluate(const lockstep::Session& session) {
  const int rank = session.rank();
  std::vector<double> counts = {3.0 + rank, 10.0 * (1 + rank)};  // correct, all
  session.team().sum(counts);
  return counts[0] / counts[1];
}

// After an epoch, rank 0 writes one line to the log.
void after_epoch(const lockstep::Session& session) {
  //@ todo
  // TODO: this hangs. Fix it: rank 0 writes one line, and the accuracy is over the samples of all ranks.
  if (session.rank() == 0) {
    const double accuracy = evaluate(session);
    lockstep::show("accuracy", accuracy);
  }
  session.team().barrier();
  //@ solution
  const double accuracy = evaluate(session);
  if (session.rank() == 0) lockstep::show("accuracy", accuracy);
  session.team().barrier();
  //@ wrong no_barrier
  if (session.rank() == 0) {
    const double accuracy = evaluate(session);
    lockstep::show("accuracy", accuracy);
  }
  //@ wrong crash: rank 1 crashed
  double* accuracy = nullptr;
  double here = 0;
  if (session.rank() == 0) accuracy = &here;
  *accuracy = evaluate(session);
  if (session.rank() == 0) lockstep::show("accuracy", *accuracy);
  session.team().barrier();
  //@ wrong own: rank 0's own samples
  if (session.rank() == 0) {
    const double accuracy = 3.0 / 10;
    lockstep::show("accuracy", accuracy);
  }
  session.team().barrier();
  //@ wrong all: instead of once on rank 0
  const double accuracy = evaluate(session);
  lockstep::show("accuracy", accuracy);
  session.team().barrier();
  //@ end
}

int main() {
  return lockstep::run([] {
    lockstep::Session session;
    after_epoch(session);
  });
}
