// Chapter 4: all-reduce.
#include <algorithm>
#include <array>
#include <cmath>

#include "course/workshop/judge.h"
#include "course/workshop/judges/messages.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

using Row = std::vector<double>;

constexpr std::array<int, 4> kWorlds = {3, 2, 5, 1};
constexpr std::array<int, 4> kSizes = {7, 1, 64, 0};  // the order in which main() tries them

// --- who is in a sum: number i of rank r was (i + 1) times 1, 10, 100, ...

double own_number(int rank, size_t i) {
  return static_cast<double>(i + 1) * std::pow(10, rank);
}

// how often each rank's is in it; empty where it is no such sum
std::vector<int> counts_in(double number, size_t i, int world) {
  std::vector<int> counts;
  double left = number / static_cast<double>(i + 1);
  if (left != std::floor(left) || left < 0) return {};
  for (int rank = 0; rank < world; ++rank) {
    counts.push_back(static_cast<int>(std::fmod(left, 10)));
    left = std::floor(left / 10);
  }
  return left == 0 ? counts : std::vector<int>{};
}

// the only rank in it; -1 where there are others
int only_rank_in(const std::vector<int>& counts) {
  int only = -1;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] == 0) continue;
    if (counts[rank] > 1 || only >= 0) return -1;
    only = static_cast<int>(rank);
  }
  return only;
}

std::string described(const std::vector<int>& counts) {
  if (counts.empty()) return "that is no sum of the ranks' numbers at this place";
  if (const int only = only_rank_in(counts); only >= 0) return format("that is rank {}'s alone", only);
  std::vector<std::string> words;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] > 1) words.push_back(format("rank {}'s {} times", rank, counts[rank]));
    if (counts[rank] == 0) words.push_back(format("rank {}'s are not in it", rank));
  }
  return base::join(words, ", ");
}

// --- what all ranks have in the end

struct Outcome {
  int world;
  size_t size;
  std::vector<Row> ranks;

  double sum(size_t i) const {
    double all = 0;
    for (int rank = 0; rank < world; ++rank) all += own_number(rank, i);
    return all;
  }
  bool is_whole(size_t rank, size_t i) const { return ranks[rank][i] == sum(i); }
  bool is_whole(size_t rank) const {
    for (size_t i = 0; i < size; ++i)
      if (!is_whole(rank, i)) return false;
    return true;
  }
  bool is_mean() const {
    return size > 0 && world > 1 && std::all_of(ranks.begin(), ranks.end(), [&](const Row& row) {
             return near(row[0] * world, sum(0));
           });
  }
  size_t ranks_with(size_t i) const {
    size_t whole = 0;
    for (size_t rank = 0; rank < ranks.size(); ++rank) whole += is_whole(rank, i) ? 1 : 0;
    return whole;
  }
};

// the first number that is not the sum
struct Difference {
  size_t rank = 0, i = 0;
  std::string what;
  std::vector<int> counts;
};

Difference first_difference(const Outcome& outcome) {
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
    for (size_t i = 0; i < outcome.size; ++i) {
      if (outcome.is_whole(rank, i)) continue;
      const auto counts = counts_in(outcome.ranks[rank][i], i, outcome.world);
      return {rank, i,
              format("with {} ranks and {} number{}, rank {} has {} at place {}, and the sum is {}: {}",
                     outcome.world, outcome.size, outcome.size == 1 ? "" : "s", rank,
                     shown(outcome.ranks[rank][i]), i, shown(outcome.sum(i)), described(counts)),
              counts};
    }
  }
  return {};
}

bool is_twice_in(const Difference& difference) {
  return std::any_of(difference.counts.begin(), difference.counts.end(), [](int count) { return count > 1; });
}

void require_numbers(const Outcome& outcome) {
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
    if (outcome.ranks[rank].size() != outcome.size)
      throw NotYet(format("with {} ranks, rank {} has {} numbers in the end, and had {}", outcome.world, rank,
                          outcome.ranks[rank].size(), outcome.size));
  }
}

using Think = std::string(const Outcome& outcome, const Difference& difference);

void look_at(const Outcome& outcome, Think think) {
  require_numbers(outcome);
  const auto difference = first_difference(outcome);
  if (!difference.what.empty()) throw NotYet(difference.what, think(outcome, difference));
}

// --- running

Run run_threads(Attempt& attempt, int world) {
  return run_threads_of(attempt, {std::to_string(world)},
                        world == 1 ? "1 thread as the only rank" : format("{} threads as ranks", world),
                        format("with {} ranks", world));
}

std::vector<Row> next_rows(const std::vector<Row>& rows, size_t batch, int world) {
  const auto each = static_cast<size_t>(world);
  if (rows.size() != each * kSizes.size())
    throw NotYet(format("{} of {} results were shown", rows.size(), each * kSizes.size()),
                 "main() shows them all: leave it as it is");
  const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(batch * each);
  return {begin, begin + world};
}

Outcome outcome_of(const RankRun& run, size_t batch, int world) {
  return {world, static_cast<size_t>(kSizes[batch]), next_rows(run.rows("numbers"), batch, world)};
}

// --- allreduce.1

std::string think_of_rank_0(const Outcome& outcome, const Difference& difference) {
  const int only = only_rank_in(difference.counts);
  if (outcome.is_mean()) return "that is a mean, and the sum is wanted";
  if (difference.rank == 0 && outcome.is_whole(0, 0))
    return "the first numbers are right: where does the loop over them end?";
  if (is_twice_in(difference) && difference.rank > 0)
    return "what comes back is whole: it takes the place of what is there, and is not added";
  if (is_twice_in(difference)) return "each rank's numbers are added once";
  if (outcome.is_whole(0) && only == static_cast<int>(difference.rank))
    return "rank 0 has the sums, but the sums have not come back to all: that is the other half; they are "
           "received "
           "into numbers";
  if (outcome.is_whole(0) && only >= 0) return "what rank 0 sends back are not the sums: what does it send?";
  if (outcome.is_whole(0) && only < 0)
    return "what rank 0 sent here left before all had come: first all of them, then the way back";
  if (only > 0 && difference.rank == 0)
    return "what is received takes the place of what was there, and nothing is added: receive into another "
           "vector, and add";
  return only == 0 ? "the others' numbers have not come to rank 0"
                   : "messenger.world() says how many ranks there are: rank 0 adds the numbers of each, once";
}

LOCKSTEP_JUDGE("allreduce.1", attempt) {
  for (const int world : kWorlds) {
    const auto run = run_threads(attempt, world);
    for (size_t batch = 0; batch < kSizes.size(); ++batch)
      look_at(outcome_of(run.ranks.front(), batch, world), think_of_rank_0);
  }
}

// --- allreduce.2

bool is_whole_on_one_rank_each(const Outcome& outcome) {
  for (size_t i = 0; i < outcome.size; ++i)
    if (outcome.ranks_with(i) != 1) return false;
  return true;
}

bool is_untouched(const Outcome& outcome) {
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
    for (size_t i = 0; i < outcome.size; ++i)
      if (outcome.ranks[rank][i] != own_number(static_cast<int>(rank), i)) return false;
  }
  return true;
}

std::string think_of_ring(const Outcome& outcome, const Difference& difference) {
  if (outcome.is_mean()) return "that is a mean, and the sum is wanted";
  if (is_twice_in(difference))
    return "something is added more than once: in the first half, what comes is added to the chunk that it "
           "is of, and "
           "a lap has P - 1 steps; in the second half it takes the place of what is there";
  if (is_whole_on_one_rank_each(outcome))
    return "each number is whole on one rank alone: that is the first half; the second half carries it to "
           "all";
  if (is_untouched(outcome)) return "do the chunks go round, and is what comes added?";
  if (outcome.ranks_with(difference.i) == 0)
    return "no rank has the whole of it: the first half is too short, or a chunk has gone round before it "
           "was "
           "whole, or what came was not added";
  return "some ranks have the whole of it: it has not come to all";
}

// what a rank sent to whom: to its right alone, and not quite twice its numbers
void look_at_traffic(const Row& bytes, int rank, int world, int size) {
  const auto what = format("the sums are right, but with {} ranks and {} numbers rank {}", world, size, rank);
  const int right = (rank + 1) % world, chunk = (size + world - 1) / world;
  for (int to = 0; to < static_cast<int>(bytes.size()); ++to) {
    if (to != right && bytes[static_cast<size_t>(to)] > 0)
      throw NotYet(format("{} sent to rank {}, and its right is rank {}", what, to, right),
                   "in a ring everybody sends to one neighbour alone");
  }
  const int most = 2 * (world - 1) * chunk * 4;
  if (bytes.size() != static_cast<size_t>(world)) throw NotYet(what + " does not say what it sent to each");
  const double count = bytes[static_cast<size_t>(right)];
  if (count <= most) return;
  const auto sent = format("{} sent {} bytes, and a ring sends {} at most", what, shown(count), most);
  if (count < (world - 1) * size * 4)
    throw NotYet(sent + ": that is a step too many",
                 "after P - 1 steps of P ranks a chunk has been everywhere");
  throw NotYet(sent + ": these are all numbers, not a chunk, in a step",
               "chunk(k) is what travels: that is what makes a ring fast");
}

LOCKSTEP_JUDGE("allreduce.2", attempt) {
  for (const int world : kWorlds) {
    const auto run = run_threads(attempt, world);
    const auto& shown_by = run.ranks.front();
    for (size_t batch = 0; batch < kSizes.size(); ++batch) {
      look_at(outcome_of(shown_by, batch, world), think_of_ring);
      const auto sent = next_rows(shown_by.rows("sent"), batch, world);
      for (int rank = 0; rank < world; ++rank)
        look_at_traffic(sent[static_cast<size_t>(rank)], rank, world, kSizes[batch]);
    }
  }
}

// --- allreduce.3

struct Network {
  double ranks, bytes, latency, bits_per_second;
  double beta() const { return 8 / bits_per_second; }
};

// a value that is often given, and what is said of it
struct Guess {
  double value;
  const char* what;
  const char* think;
};

// seconds a byte are small numbers
bool are_equal(double is, double wanted) {
  return std::abs(is - wanted) <= 1e-6 * std::abs(wanted);
}

void look_at_value(const RankRun& run, const std::string& name, const std::string& named, double wanted,
                   const std::vector<Guess>& guesses) {
  const double is = run.number(name);
  if (are_equal(is, wanted)) return;
  if (is == 0) throw NotYet(format("{}: {} is still 0", named, name), "what it is to be stands above it");
  const auto what = format("{}: {} gives {}, and it is {}", named, name, shown(is), shown(wanted));
  for (const auto& guess : guesses)
    if (are_equal(is, guess.value)) throw NotYet(format("{}: {}", what, guess.what), guess.think);
  throw NotYet(what);
}

void look_at_beta(const RankRun& run, const std::string& named, const Network& network) {
  look_at_value(run, "seconds_a_byte", named, network.beta(),
                {{network.beta() / 8, "that is for a bit, and a byte has 8 bits", "all else is in bytes"},
                 {network.beta() / 64, "that is for an eighth of a bit", "divide by the bytes, not the bits"},
                 {1 / network.beta(), "that is how many bytes go in a second", "turn it round"}});
}

void look_at_reduce_broadcast(const RankRun& run, const std::string& named, const Network& network) {
  const double bytes = network.bytes * network.beta(), all = (network.ranks - 1) * bytes;
  const double wanted = 2 * (network.latency + all);
  look_at_value(run, "reduce_broadcast", named, wanted,
                {{wanted / 2, "that is half of what it takes", "the sums go back the same way"},
                 {2 * (network.latency + bytes), "that is one message's bytes each way",
                  "how many messages share rank 0's line?"},
                 {2 * (network.latency + all + bytes), "that is one message too many each way",
                  "rank 0 sends nothing to itself"},
                 {2 * (network.ranks - 1) * (network.latency + bytes),
                  "each message has a latency of its own", "messages that come together share one"}});
}

void look_at_ring(const RankRun& run, const std::string& named, const Network& network) {
  const double chunk = network.bytes / network.ranks * network.beta(), step = network.latency + chunk;
  const double wanted = 2 * (network.ranks - 1) * step;
  look_at_value(
      run, "ring", named, wanted,
      {{wanted / 2, "that is one half, and everything goes round twice", "once to add, once to tell"},
       {2 * network.ranks * step, "that is P steps a half, and a whole lap has one step less",
        "after P - 1 steps a chunk has been everywhere"},
       {2 * (network.ranks - 1) * (network.latency + network.bytes * network.beta()),
        "that is all n bytes in each step", "a step carries a chunk"}});
}

void look_at_crossover(const RankRun& run, const std::string& named, const Network& network) {
  const double ranks = network.ranks, beta = network.beta();
  const double betas = (ranks - 1) * (1 - 2 / ranks) * beta;
  look_at_value(
      run, "crossover", named, (2 * ranks - 3) * network.latency / betas,
      {{(2 * ranks - 2) * network.latency / betas,
        "there the bytes have made good all of the ring's latencies, but all_to_all has a latency, too",
        "subtract it on both sides"},
       {(2 * ranks - 3) * network.latency / ((ranks - 1) * beta), "as if the ring's bytes took no time",
        "they take 2 (P - 1) / P n beta"}});
}

constexpr std::array<Network, 3> kNetworks = {
    {{4, 1 << 20, 2e-3, 1e9}, {3, 4096, 200e-6, 1e10}, {8, 100e6, 5e-6, 1e11}}};

LOCKSTEP_JUDGE("allreduce.3", attempt) {
  for (const auto& network : kNetworks) {
    const auto named = format("{} ranks, {:.0f} bytes, {} us, {} Gbit/s", network.ranks, network.bytes,
                              shown(network.latency * 1e6), shown(network.bits_per_second / 1e9));
    const auto run = run_threads_of(attempt,
                                    {format("{}", network.ranks), format("{}", network.bytes),
                                     format("{}", network.latency), format("{}", network.bits_per_second)},
                                    named, named);
    for (const auto look : {look_at_beta, look_at_reduce_broadcast, look_at_ring, look_at_crossover})
      look(run.ranks.front(), named, network);
  }
}

}  // namespace
}  // namespace lockstep::workshop
