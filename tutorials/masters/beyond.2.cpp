//@ title      Act on every rank, and learn together
//@ hint       How do 4, 2 and 7 become 427? How many digits does each number need so that 4, 2 and 12 do not equal another combination?
//@ hint       (seed * 1000 + rank) * 1000 + environment is unique as long as there are fewer than a thousand of each.
//@ hint       Begin with the last step, which nothing follows. The step before it has its reward + gamma * the return of the next step.
//@ hint       No return follows a step that ended its episode, whatever the next entry is.
//@ hint       Sum three values over the ranks: the count, the sum and the sum of squares. Divide after that.
//@ unsolved   which give equal episodes
#include <lockstep/workshop.h>

#include <random>

// Nobody hands out samples here: each rank plays with environments of its own, and all learn one policy.

// What this environment of this rank draws its chances from, in a run with this seed. No two environments of a run
// have the same, and no two runs share one, if their seeds differ: with seeds, ranks and environments up to 999. The same
// again, when the run is repeated.
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
  bool ended;  // it was the last of its episode: the next step begins another
};

// What each step was good for: its reward, and what came of it in the same episode, where what comes a step later
// counts gamma as much, two steps later gamma * gamma, ...
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

// The returns of all ranks with a mean of 0 and a deviation (the root of the mean of the squares) of 1: each rank
// gets its own back. Above 0 is a step that was better than usual. The ranks need not have equally many.
std::vector<double> normalised(std::vector<double> returns, const lockstep::Session& session) {
  //@ todo
  // TODO
  (void)session;
  //@ solution
  std::vector<double> sums(3);  // how many, their sum, the sum of their squares
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
