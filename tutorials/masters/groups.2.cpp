//@ title      Find the slowest rank with a collective
//@ hint       max() returns the longest time, but not its rank. Which collective returns every rank's number?
//@ hint       all_gather() of a tensor with one number returns a vector of such tensors, in rank order, on every rank.
//@ hint       Loop over them and keep the rank of the largest number so far. Every rank gets the same result.
#include <lockstep/workshop.h>

// Ranks take different times for a step, and all wait for the slowest one. Which rank is it?

int slowest_rank(const lockstep::Session& session, double seconds) {
  //@ todo
  // TODO: return the slowest rank, the same on every rank. If two ranks take the same time, return the lower one.
  (void)seconds;
  return session.rank();
  //@ solution
  const auto all = session.team().all_gather(at::full({1}, seconds, at::kDouble));
  size_t slowest = 0;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all.at(rank).item<double>() > all.at(slowest).item<double>()) slowest = rank;
  }
  return static_cast<int>(slowest);
  //@ wrong whole
  const auto all = session.team().all_gather(at::full({1}, static_cast<int64_t>(seconds), at::kLong));
  size_t slowest = 0;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all.at(rank).item<int64_t>() > all.at(slowest).item<int64_t>()) slowest = rank;
  }
  return static_cast<int>(slowest);
  //@ wrong float32
  const auto all = session.team().all_gather(at::full({1}, seconds));
  size_t slowest = 0;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all.at(rank).item<float>() > all.at(slowest).item<float>()) slowest = rank;
  }
  return static_cast<int>(slowest);
  //@ wrong still
  const auto all = session.team().all_gather(at::full({1}, seconds, at::kDouble));
  const auto longest = all.at(0).item<double>();
  size_t slowest = 0;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all.at(rank).item<double>() > longest) slowest = rank;
  }
  return static_cast<int>(slowest);
  //@ wrong neighbour
  const auto all = session.team().all_gather(at::full({1}, seconds, at::kDouble));
  size_t slowest = 0;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all.at(rank).item<double>() > all.at(rank - 1).item<double>()) slowest = rank;
  }
  return static_cast<int>(slowest);
  //@ wrong seconds
  std::vector<double> longest = {seconds};
  session.team().max(longest);
  return static_cast<int>(longest[0]);
  //@ wrong later
  const auto all = session.team().all_gather(at::full({1}, seconds, at::kDouble));
  size_t slowest = 0;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all.at(rank).item<double>() >= all.at(slowest).item<double>()) slowest = rank;
  }
  return static_cast<int>(slowest);
  //@ wrong itself
  std::vector<double> longest = {seconds};
  session.team().max(longest);
  return longest[0] == seconds ? session.rank() : -1;
  //@ wrong lonely: left the group
  if (session.rank() != 0) return 0;
  const auto all = session.team().all_gather(at::full({1}, seconds, at::kDouble));
  return all.at(0).item<double>() > 3 ? 0 : 1;
  //@ end
}

// You need not change anything below. Each of these is a collective: all ranks call it, and each waits for the others.
// SECONDS: the times of rank 0, rank 1, ...
int main(int argc, char** argv) {
  return lockstep::run([&] {
    lockstep::Session session;
    const auto& team = session.team();
    const int rank = session.rank();

    std::vector<double> numbers = {1.0 + rank, 10.0 * rank};
    lockstep::show("has", numbers);
    auto sum = numbers;
    team.sum(sum);  // element by element, on every rank
    lockstep::show("sum", sum);
    auto max = numbers;
    team.max(max);
    lockstep::show("max", max);

    std::string from_all;
    for (const auto& text : team.all_gather("r" + std::to_string(rank))) from_all += text + " ";
    lockstep::show("all_gather", from_all);  // every rank's string, in rank order
    lockstep::show("broadcast", team.broadcast(rank == 0 ? "lr 0.1" : "nobody asks me"));
    team.barrier();  // exchanges no data, only waits for all ranks

    constexpr std::array<double, 4> kSeconds = {4, 4.25, 3, 4.25};
    const bool given = argc > 1 + rank;
    const double seconds = given ? std::stod(argv[1 + rank]) : kSeconds[static_cast<size_t>(rank) % 4];
    lockstep::show("slowest", slowest_rank(session, seconds));
  });
}
