#include <lockstep/workshop.h>

// Ranks take different times for a step, and all wait for the slowest one. Which rank is it?

int slowest_rank(const lockstep::Session& session, double seconds) {
  // TODO: return the slowest rank, the same on every rank. If two ranks take the same time, return the lower one.
  (void)seconds;
  return session.rank();
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
