#include <lockstep/workshop.h>

#include <random>

// Here no sampler distributes samples: each rank acts in its own environments, and all ranks train one policy.

// The seed for the random numbers of one environment on one rank, in a run with this seed. It is unique among all
// environments, ranks and runs with different seeds, for seeds, ranks and environments up to 999. A repeated run gets
// the same seed.
uint64_t seed_of(uint64_t seed, int rank, int environment) {
  // TODO
  (void)rank;
  return seed * 1000 + static_cast<uint64_t>(environment);
}

struct Step {
  double reward;
  bool ended;  // the last step of an episode: the next step begins another
};

// The return of each step: its reward, plus the later rewards in the same episode. A reward one step later is
// multiplied by gamma, two steps later by gamma * gamma, and so on.
std::vector<double> returns_of(const std::vector<Step>& steps, double gamma) {
  std::vector<double> returns(steps.size());
  // TODO
  (void)gamma;
  for (size_t i = 0; i < steps.size(); ++i) returns[i] = steps[i].reward;
  return returns;
}

// Normalizes the returns over all ranks to mean 0 and deviation 1 (root of the mean square). Each rank gets its own
// returns back. Above 0 means better than average. The ranks may have different numbers of returns.
std::vector<double> normalised(std::vector<double> returns, const lockstep::Session& session) {
  // TODO
  (void)session;
  return returns;
}

// Seeds that are far apart: for each combination of run seed, rank and environment among these numbers.
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

// The steps of rank r. Its last episode has not ended, so nothing is known of what follows.
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
    lockstep::show("normalized", normalised(returns, session));
  });
}
