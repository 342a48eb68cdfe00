// Chapter 11, beyond.2: acting on every rank.
#include <cmath>
#include <iterator>
#include <map>
#include <sstream>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

// a value that is often given, and what is said of it
struct RowGuess {
  Row values;
  const char* what;
  const char* think;
};

void look_at_row(const std::string& name, const Row& is, const Row& wanted,
                 const std::vector<RowGuess>& guesses) {
  std::vector<Guess> rows;
  for (const auto& [values, what, think] : guesses) rows.push_back({near(is, values), what, think});
  expect(near(is, wanted), format("{}: they are {}, and should be {}", name, shown(is), shown(wanted)), rows);
}

// --- seeds

constexpr int kRuns = 3;  // with the seeds 0, 1 and 2

struct Player {
  int run, rank, environment;
};

std::vector<std::string> words_in(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

[[noreturn]] void refuse_twins(const std::string& seed, const Player& a, const Player& b) {
  if (a.run != b.run)
    throw NotYet(
        format("environment {} of rank {} has the seed {} in a run with seed {}, and environment {} of "
               "rank {} in a run with seed {}: a run with seed {} plays again what another has played",
               a.environment, a.rank, seed, a.run, b.environment, b.rank, b.run, b.run),
        "seeds beside each other are what people try: 0, 1, 2");
  if (a.rank == b.rank)
    throw NotYet(format("environments {} and {} of rank {} have the same seed, {}", a.environment,
                        b.environment, a.rank, seed),
                 "they see the same chances: is the environment in it?");
  if (a.environment == b.environment)
    throw NotYet(
        format("environment {} has the seed {} on rank {} and on rank {}: they play the same episodes",
               a.environment, seed, a.rank, b.rank),
        "two ranks with the same samples learn no more than one");
  throw NotYet(format("rank {}'s environment {} and rank {}'s environment {} have the same seed, {}", a.rank,
                      a.environment, b.rank, b.environment, seed),
               "a sum of two numbers is soon the sum of two others: give each a place of its own");
}

// of one player after another: no two have the same
void judge_seeds(const std::vector<std::string>& seeds, const std::vector<Player>& of,
                 std::map<std::string, Player>& players) {
  expect(seeds.size() == of.size(),
         format("{} seeds are shown, and there are {} players", seeds.size(), of.size()), {},
         "main() shows them all: leave it as it is");
  for (size_t i = 0; i < of.size(); ++i) {
    const auto [there, is_new] = players.emplace(seeds[i], of[i]);
    if (!is_new) refuse_twins(there->first, there->second, of[i]);
  }
}

void judge_seeds(const Run& run, int environments) {
  std::map<std::string, Player> players, far_players;
  for (int seed = 0; seed < kRuns; ++seed) {
    for (const auto& rank : run.ranks) {
      std::vector<Player> of;
      for (int i = 0; i < environments; ++i) of.push_back({seed, rank.rank(), i});
      judge_seeds(words_in(rank.text(format("seeds of run {}", seed))), of, players);
    }
  }
  // what main() tries besides the ranks that are there
  constexpr int kFar[] = {0, 1, 10, 16, 31, 32, 37, 64, 100, 128, 256, 512, 999};
  std::vector<Player> far;
  for (const int seed : kFar)
    for (const int rank : kFar)
      for (const int environment : kFar) far.push_back({seed, rank, environment});
  judge_seeds(words_in(run.ranks[0].text("far seeds")), far, far_players);
}

void require_the_same_again(const Run& first, const Run& again) {
  for (int seed = 0; seed < kRuns; ++seed) {
    const auto name = format("seeds of run {}", seed);
    expect(again.ranks[0].text(name) == first.ranks[0].text(name),
           format("rank 0 has other seeds when it is run again, in a run with seed {}", seed), {},
           "the seed of a run stands for all that happens in it");
  }
}

// --- returns

struct Step {
  double reward;
  bool ended;
};

// as the exercise's main() plays
std::vector<Step> played(int rank, int steps) {
  std::vector<Step> all;
  for (int i = 0; i < steps + 3 * rank; ++i)
    all.push_back({static_cast<double>((5 * i + 3 * rank) % 7), i % (4 + rank) == 2 + rank});
  return all;
}

Row rewards_of(const std::vector<Step>& steps) {
  Row rewards;
  for (const auto& step : steps) rewards.push_back(step.reward);
  return rewards;
}

Row returns_of(const std::vector<Step>& steps, double gamma) {
  Row returns(steps.size());
  for (size_t i = steps.size(); i-- > 0;) {
    const bool goes_on = i + 1 < steps.size() && !steps[i].ended;
    returns[i] = steps[i].reward + (goes_on ? gamma * returns[i + 1] : 0);
  }
  return returns;
}

std::vector<Step> without_ends(std::vector<Step> steps) {
  for (auto& step : steps) step.ended = false;
  return steps;
}

// the end moved to the step before
std::vector<Step> ended_early(std::vector<Step> steps) {
  for (size_t i = 0; i < steps.size(); ++i) steps[i].ended = i + 1 < steps.size() && steps[i + 1].ended;
  return steps;
}

Row sums_before(const std::vector<Step>& steps, double gamma) {
  Row sums;
  double before = 0;
  for (const auto& step : steps) {
    sums.push_back(before = step.reward + gamma * before);
    if (step.ended) before = 0;
  }
  return sums;
}

void judge_returns(const RankRun& rank, int count, double gamma) {
  const auto steps = played(rank.rank(), count);
  look_at_row(format("the returns of rank {}, gamma {}", rank.rank(), shown(gamma)), rank.numbers("returns"),
              returns_of(steps, gamma),
              {{rewards_of(steps), "that is a step's reward alone", "what came of it belongs to it, too"},
               {returns_of(without_ends(steps), gamma), "a return leaks in from the next episode",
                "what comes after an end is no consequence of what came before it"},
               {returns_of(ended_early(steps), gamma), "each episode ends a step too early",
                "the step that ended it is the last of its episode, and not the first of the next"},
               {returns_of(steps, 1), "that is as if gamma were 1", "what comes later counts less"},
               {sums_before(steps, gamma), "that is what came before it",
                "a step is good for what comes of it: begin at the end"}});
}

// --- normalised

struct Moments {
  double count = 0, sum = 0, squares = 0;
  void add(const Row& row) {
    for (const double one : row) count += 1, sum += one, squares += one * one;
  }
  double mean() const { return sum / count; }
  double variance() const { return squares / count - mean() * mean(); }
};

Moments moments_of(const Row& row) {
  Moments moments;
  moments.add(row);
  return moments;
}

Row scaled(Row row, double mean, double deviation) {
  for (double& one : row) one = (one - mean) / deviation;
  return row;
}

/// As if each rank had as many steps.
Moments mean_of_moments(const std::vector<Row>& ranks) {
  Moments all;
  for (const auto& row : ranks) {
    const auto own = moments_of(row);
    all.count += 1, all.sum += own.mean(), all.squares += own.squares / own.count;
  }
  return all;
}

double mean_deviation(const std::vector<Row>& ranks) {
  double sum = 0;
  for (const auto& row : ranks) sum += std::sqrt(moments_of(row).variance());
  return sum / static_cast<double>(ranks.size());
}

void judge_normalised(const RankRun& rank, const std::vector<Row>& ranks) {
  const auto& own = ranks[static_cast<size_t>(rank.rank())];
  Moments all;
  for (const auto& row : ranks) all.add(row);
  const auto alone = moments_of(own), even = mean_of_moments(ranks);
  const double mean = all.mean(), deviation = std::sqrt(all.variance());
  constexpr const char* kUneven = "as if each rank had as many steps";
  constexpr const char* kSums = "a mean of means is not the mean: sum how many, too";
  look_at_row(
      format("the normalised returns of rank {} of {}", rank.rank(), ranks.size()),
      rank.numbers("normalised"), scaled(own, mean, deviation),
      {{own, "that is as they were", "subtract the mean, divide by the deviation"},
       {scaled(own, alone.mean(), std::sqrt(alone.variance())), "that is by its own steps alone",
        "each rank would call half of its own steps good, however bad they are beside the others'"},
       {scaled(own, even.mean(), std::sqrt(even.variance())), kUneven, kSums},
       {scaled(own, even.mean(), mean_deviation(ranks)), kUneven, kSums},
       {scaled(own, even.mean(), deviation), kUneven, kSums},
       {scaled(own, mean, std::sqrt(alone.variance())),
        "the mean is that of all ranks, and the deviation its own", "both are of all ranks"},
       {scaled(own, mean, 1), "they are not divided by the deviation",
        "a step of learning should not depend on how large rewards happen to be"},
       {scaled(own, mean, all.variance()), "they are divided by the deviation's square",
        "the deviation is a root"},
       {scaled(own, mean, std::sqrt(all.variance() * all.count / (all.count - 1))),
        "they are divided by a deviation of n - 1", "here it is the root of the mean of the squares, of n"}});
}

LOCKSTEP_JUDGE("beyond.2", attempt) {
  struct Round {
    int world, environments, steps;
    double gamma;
  };
  constexpr Round kRounds[] = {{2, 3, 6, 0.5}, {3, 999, 11, 0.9}, {2, 999, 1, 0.99}};
  std::vector<Run> runs;
  for (const auto& [world, environments, steps, gamma] : kRounds) {
    const auto run = attempt.run(
        {.world = world, .args = {std::to_string(environments), std::to_string(steps), shown(gamma)}});
    judge_seeds(run, environments);
    std::vector<Row> returns;
    for (const auto& rank : run.ranks) {
      judge_returns(rank, steps, gamma);
      returns.push_back(returns_of(played(rank.rank(), steps), gamma));
    }
    for (const auto& rank : run.ranks) judge_normalised(rank, returns);
    runs.push_back(run);
  }
  require_the_same_again(runs[1], runs[2]);
}

}  // namespace
}  // namespace lockstep::workshop
