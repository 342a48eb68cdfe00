//@ title      Average a loss over the ranks
//@ hint       Which member of Session combines the numbers of all ranks?
//@ hint       sum() of session.team() leaves the sum on every rank. What is a mean?
//@ hint       Divide by session.world().
//@ unsolved   its own loss
#include <lockstep/workshop.h>

// Each rank has a loss for its own samples. The log needs one number: the mean over all ranks, which is the same on
// every rank.

double mean_over_ranks(const lockstep::Session& session, double loss) {
  //@ todo
  // TODO: return the mean over all ranks
  (void)session;
  return loss;
  //@ solution
  std::vector<double> numbers = {loss};
  session.team().sum(numbers);
  return numbers[0] / session.world();
  //@ wrong sum: the sum of all losses
  std::vector<double> numbers = {loss};
  session.team().sum(numbers);
  return numbers[0];
  //@ wrong twice: divided twice
  std::vector<double> numbers = {loss / session.world()};
  session.team().sum(numbers);
  return numbers[0] / session.world();
  //@ wrong alone: only rank 0
  std::vector<double> numbers = {loss};
  session.team().sum(numbers);
  return session.rank() == 0 ? numbers[0] / session.world() : loss;
  //@ wrong sizes: calls differ
  std::vector<double> numbers(1 + session.rank(), loss);
  session.team().sum(numbers);
  return numbers[0] / session.world();
  //@ wrong two
  std::vector<double> numbers = {loss};
  session.team().sum(numbers);
  return numbers[0] / 2;
  //@ wrong formula
  return (session.world() + 1) / 2.0;
  //@ wrong first
  return std::stod(session.team().broadcast(std::to_string(loss)));
  //@ wrong greatest
  std::vector<double> numbers = {loss};
  session.team().max(numbers);
  return numbers[0];
  //@ wrong lonely: left the group
  std::vector<double> numbers = {loss};
  if (session.rank() == 0) session.team().sum(numbers);
  return numbers[0] / session.world();
  //@ end
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
