//@ title      Act on every rank, and learn together
//@ hint       How do 4, 2 and 7 become 427? How many digits does each number need so that 4, 2 and 12 do not equal another combination?
//@ hint       (seed * 1000 + rank) * 1000 + environment is unique as long as there are fewer than a thousand of each.
//@ hint       Begin with the last step, which nothing follows. The step before it has its reward + gamma * the return of the next step.
//@ hint       No return follows a step that ended its episode, whatever the next entry is.
//@ hint       Sum three values over the ranks: the count, the sum and the sum of squares. Divide after that.
//@ unsolved   which give equal episodes
#include <lockstep/workshop.h>

#include <random>

// Here no sampler distributes samples: each rank acts in its own environments, and all ranks train one policy.

// The seed for the random numbers of one environment on one rank, in a run with this seed. It is unique among all
// environments, ranks and runs with different seeds, for seeds, ranks and environments up to 999. A repeated run gets
// the same seed.
uint64_t seed_of(uint64_t seed, int rank, int environment) {
  //@ todo
  // TODO
  (void)rank;
  return seed * 1000 + static_cast<uint64_t>(environment);
  //@ solution
  return (seed * 1000 + static_cast<uint64_t>(rank)) * 1000 + static_cast<uint64_t>(environment);
  //@ wrong sum
  return seed * 1000 + static_cast<uint64_t>(rank + environment);
  //@ wrong digits
  return seed * 100 + static_cast<uint64_t>(rank * 10 + environment);
  //@ wrong runs
  return seed + static_cast<uint64_t>(rank * 1000 + environment);
  //@ wrong ranks_alone
  (void)environment;
  return seed * 1000 + static_cast<uint64_t>(rank);
  //@ wrong hundreds
  return (seed * 1000 + static_cast<uint64_t>(rank)) * 100 + static_cast<uint64_t>(environment);
  //@ wrong bytes
  return seed << 32 | static_cast<uint64_t>(rank * 256 + environment);
  //@ wrong ten_ranks
  return (seed * 10 + static_cast<uint64_t>(rank)) * 1000 + static_cast<uint64_t>(environment);
  //@ wrong primes
  return seed * 1000003 + static_cast<uint64_t>(rank * 37 + environment);
  //@ wrong short_places: in a run with seed 10
  return seed * 1000 + static_cast<uint64_t>(rank) * 10000 + static_cast<uint64_t>(environment);
  //@ wrong random: different seeds when it runs again
  return (static_cast<uint64_t>(std::random_device()()) << 32 | std::random_device()()) + seed +
         static_cast<uint64_t>(rank + environment);
  //@ end
}

struct Step {
  double reward;
  bool ended;  // the last step of an episode: the next step begins another
};

// The return of each step: its reward, plus the later rewards in the same episode. A reward one step later is
// multiplied by gamma, two steps later by gamma * gamma, and so on.
std::vector<double> returns_of(const std::vector<Step>& steps, double gamma) {
  std::vector<double> returns(steps.size());
  //@ todo
  // TODO
  (void)gamma;
  for (size_t i = 0; i < steps.size(); ++i) returns[i] = steps[i].reward;
  //@ solution
  double after = 0;
  for (size_t i = steps.size(); i-- > 0;) {
    if (steps[i].ended) after = 0;
    returns[i] = after = steps[i].reward + gamma * after;
  }
  //@ wrong rewards
  (void)gamma;
  for (size_t i = 0; i < steps.size(); ++i) returns[i] = steps[i].reward;
  //@ wrong leaks
  double after = 0;
  for (size_t i = steps.size(); i-- > 0;) returns[i] = after = steps[i].reward + gamma * after;
  //@ wrong early
  double after = 0;
  for (size_t i = steps.size(); i-- > 0;) {
    returns[i] = after = steps[i].reward + gamma * after;
    if (steps[i].ended) after = 0;
  }
  //@ wrong whole
  (void)gamma;
  double after = 0;
  for (size_t i = steps.size(); i-- > 0;) {
    if (steps[i].ended) after = 0;
    returns[i] = after = steps[i].reward + after;
  }
  //@ wrong before
  double before = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    returns[i] = before = steps[i].reward + gamma * before;
    if (steps[i].ended) before = 0;
  }
  //@ end
  return returns;
}

// Normalizes the returns over all ranks to mean 0 and deviation 1 (root of the mean square). Each rank gets its own
// returns back. Above 0 means better than average. The ranks may have different numbers of returns.
std::vector<double> normalised(std::vector<double> returns, const lockstep::Session& session) {
  //@ todo
  // TODO
  (void)session;
  //@ solution
  std::vector<double> sums(3);  // count, sum, sum of squares
  for (const double one : returns) sums[0] += 1, sums[1] += one, sums[2] += one * one;
  session.team().sum(sums);
  const double mean = sums[1] / sums[0], deviation = std::sqrt(sums[2] / sums[0] - mean * mean);
  for (double& one : returns) one = (one - mean) / deviation;
  //@ wrong raw
  (void)session;
  //@ wrong alone
  (void)session;
  std::vector<double> sums(3);
  for (const double one : returns) sums[0] += 1, sums[1] += one, sums[2] += one * one;
  const double mean = sums[1] / sums[0], deviation = std::sqrt(sums[2] / sums[0] - mean * mean);
  for (double& one : returns) one = (one - mean) / deviation;
  //@ wrong means
  std::vector<double> means(2);
  for (const double one : returns) means[0] += one, means[1] += one * one;
  for (double& one : means) one /= static_cast<double>(returns.size());
  session.team().sum(means);
  const double mean = means[0] / session.world(), square = means[1] / session.world();
  for (double& one : returns) one = (one - mean) / std::sqrt(square - mean * mean);
  //@ wrong own_deviation
  std::vector<double> sums(3);
  for (const double one : returns) sums[0] += 1, sums[1] += one, sums[2] += one * one;
  auto all = sums;
  session.team().sum(all);
  const double mean = all[1] / all[0], own = sums[1] / sums[0];
  for (double& one : returns) one = (one - mean) / std::sqrt(sums[2] / sums[0] - own * own);
  //@ wrong centred
  std::vector<double> sums(2);
  for (const double one : returns) sums[0] += 1, sums[1] += one;
  session.team().sum(sums);
  for (double& one : returns) one -= sums[1] / sums[0];
  //@ wrong variance
  std::vector<double> sums(3);
  for (const double one : returns) sums[0] += 1, sums[1] += one, sums[2] += one * one;
  session.team().sum(sums);
  const double mean = sums[1] / sums[0];
  for (double& one : returns) one = (one - mean) / (sums[2] / sums[0] - mean * mean);
  //@ end
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
