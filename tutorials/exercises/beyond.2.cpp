#include <lockstep/workshop.h>

#include <random>

// Nobody hands out samples here: each rank plays with environments of its own, and all learn one policy.

// What this environment of this rank draws its chances from, in a run with this seed. No two environments of a run
// have the same, and no two runs share one, if their seeds differ: with seeds, ranks and environments up to 999. The same
// again, when the run is repeated.
uint64_t seed_of(uint64_t seed, int rank, int environment) {
  // TODO
  (void)rank;
  return seed * 1000 + static_cast<uint64_t>(environment);
}

struct Step {
  double reward;
  bool ended;  // it was the last of its episode: the next step begins another
};

// What each step was good for: its reward, and what came of it in the same episode, where what comes a step later
// counts gamma as much, two steps later gamma * gamma, ...
std::vector<double> returns_of(const std::vector<Step>& steps, double gamma) {
  std::vector<double> returns(steps.size());
  // TODO
  (void)gamma;
  for (size_t i = 0; i < steps.size(); ++i) returns[i] = steps[i].reward;
  return returns;
}

// The returns of all ranks with a mean of 0 and a deviation (the root of the mean of the squares) of 1: each rank
// gets its own back. Above 0 is a step that was better than usual. The ranks need not have equally many.
std::vector<double> normalised(std::vector<double> returns, const lockstep::Session& session) {
  // TODO
  (void)session;
  return returns;
}

// The seeds of players far apart: of each seed of a run, rank and environment among these numbers.
std::string far_seeds() {
  const std::vector<int> numbers = {0, 1, 10, 16, 31, 32, 37, 64, 100, 128, 256, 512, 999};
  std::string seeds;
  for (const int seed : numbers) {
    for (const int rank : numbers) {
      for (const int environment : numbers)
        seeds += std::to_string(seed_of(static_cast<uint64_t>(seed), rank, environment)) + " ";
    }
  }
  return seeds;
}

// What rank r has played. Its last episode has not come to its end: nothing is known of what follows.
std::vector<Step> played(int rank, size_t steps) {
  std::vector<Step> all;
  const auto r = static_cast<size_t>(rank);
  for (size_t i = 0; i < steps + 3 * r; ++i)
    all.push_back({static_cast<double>((5 * i + 3 * r) % 7), i % (4 + r) == 2 + r});
  return all;
}

// ENVIRONMENTS STEPS GAMMA
int main(int count, char** words) {
  return lockstep::run([&] {
    lockstep::Session session;
    const int environments = count > 1 ? std::stoi(words[1]) : 3;
    for (const uint64_t seed : {0, 1, 2}) {
      std::string seeds;
      for (int i = 0; i < environments; ++i) seeds += std::to_string(seed_of(seed, session.rank(), i)) + " ";
      lockstep::show("seeds of run " + std::to_string(seed), seeds);
    }
    if (session.rank() == 0) lockstep::show("far seeds", far_seeds());
    const auto steps = played(session.rank(), count > 2 ? std::stoul(words[2]) : 6);
    const auto returns = returns_of(steps, count > 3 ? std::stod(words[3]) : 0.5);
    lockstep::show("returns", returns);
    lockstep::show("normalised", normalised(returns, session));
  });
}
