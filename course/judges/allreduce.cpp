// Chapter 4: all-reduce.
#include <algorithm>
#include <cmath>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

constexpr int kWorlds[] = {3, 2, 5, 1};
constexpr size_t kSizes[] = {7, 1, 64, 0};  // the order in which main() tries them

// --- who is in a sum: number i of rank r was (i + 1) times 1, 10, 100, ...

double own_number(int rank, size_t i) {
  return static_cast<double>(i + 1) * std::pow(10, rank);
}

// how often each rank's is in it; empty where it is no such sum
std::vector<int> counts_in(double number, size_t i, int world) {
  std::vector<int> counts;
  double left = number / static_cast<double>(i + 1);
  if (left != std::floor(left) || left < 0) return {};
  for (int rank = 0; rank < world; ++rank, left = std::floor(left / 10))
    counts.push_back(static_cast<int>(std::fmod(left, 10)));
  return left == 0 ? counts : std::vector<int>{};
}

// the only rank in it; -1 where there are others
int only_rank_in(const std::vector<int>& counts) {
  const auto one = std::find(counts.begin(), counts.end(), 1);
  const auto none = std::count(counts.begin(), counts.end(), 0);
  return one == counts.end() || none + 1 != std::ssize(counts) ? -1 : static_cast<int>(one - counts.begin());
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

// what all ranks have in the end
struct Outcome {
  int world;
  size_t size;
  Rows ranks;

  double sum(size_t i) const {
    double all = 0;
    for (int rank = 0; rank < world; ++rank) all += own_number(rank, i);
    return all;
  }
  bool is_whole(size_t rank, size_t i) const { return ranks[rank][i] == sum(i); }
  bool is_whole(size_t rank) const { return ranks_with(rank, rank + 1, size) == size; }
  size_t ranks_with(size_t first, size_t last, size_t until, size_t from = 0) const {
    size_t whole = 0;
    for (size_t rank = first; rank < last; ++rank)
      for (size_t i = from; i < until; ++i) whole += is_whole(rank, i) ? 1 : 0;
    return whole;
  }
  bool is_mean() const {
    return size > 0 && world > 1 && std::all_of(ranks.begin(), ranks.end(), [&](const Row& row) {
             return near(row[0] * world, sum(0));
           });
  }
};

// the first number that is not the sum: of which rank, where, and who is in it
struct Difference {
  size_t rank, i;
  std::vector<int> counts;
  bool is_twice_in() const {
    return std::any_of(counts.begin(), counts.end(), [](int count) { return count > 1; });
  }
};

using Think = std::string(const Outcome& outcome, const Difference& difference);

void judge_numbers(const Outcome& outcome, Think think) {
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank)
    expect(outcome.ranks[rank].size() == outcome.size,
           format("with {} ranks, rank {} has {} numbers in the end, and had {}", outcome.world, rank,
                  outcome.ranks[rank].size(), outcome.size));
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
    for (size_t i = 0; i < outcome.size; ++i) {
      if (outcome.is_whole(rank, i)) continue;
      const auto counts = counts_in(outcome.ranks[rank][i], i, outcome.world);
      throw NotYet(format("with {} ranks and {} number{}, rank {} has {} at place {}, and the sum is {}: {}",
                          outcome.world, outcome.size, outcome.size == 1 ? "" : "s", rank,
                          shown(outcome.ranks[rank][i]), i, shown(outcome.sum(i)), described(counts)),
                   think(outcome, {rank, i, counts}));
    }
  }
}

Run run_threads(Attempt& attempt, int world) {
  return run_threads_of(attempt, {std::to_string(world)},
                        world == 1 ? "1 thread as the only rank" : format("{} threads as ranks", world),
                        format("with {} ranks", world));
}

Rows rows_of_batch(const Rows& rows, size_t batch, int world) {
  const auto each = static_cast<size_t>(world);
  expect(rows.size() == each * std::size(kSizes),
         format("{} of {} results were shown", rows.size(), each * std::size(kSizes)), {},
         "main() shows them all: leave it as it is");
  const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(batch * each);
  return {begin, begin + world};
}

// --- allreduce.1

std::string think_of_rank_0(const Outcome& outcome, const Difference& difference) {
  const int only = only_rank_in(difference.counts);
  if (outcome.is_mean()) return "that is a mean, and the sum is wanted";
  if (difference.rank == 0 && outcome.is_whole(0, 0))
    return "the first numbers are right: where does the loop over them end?";
  if (difference.is_twice_in() && difference.rank > 0)
    return "what comes back is whole: it takes the place of what is there, and is not added";
  if (difference.is_twice_in()) return "each rank's numbers are added once";
  if (outcome.is_whole(0) && only == static_cast<int>(difference.rank))
    return "rank 0 has the sums, but the sums have not come back to all: that is the other half; they are "
           "received into numbers";
  if (outcome.is_whole(0))
    return only >= 0 ? "what rank 0 sends back are not the sums: what does it send?"
                     : "what rank 0 sent here left before all had come: first all of them, then the way back";
  if (only > 0 && difference.rank == 0)
    return "what is received takes the place of what was there, and nothing is added: receive into another "
           "vector, and add";
  return only == 0 ? "the others' numbers have not come to rank 0"
                   : "messenger.world() says how many ranks there are: rank 0 adds the numbers of each, once";
}

LOCKSTEP_JUDGE("allreduce.1", attempt) {
  for (const int world : kWorlds) {
    const auto run = run_threads(attempt, world);
    for (size_t batch = 0; batch < std::size(kSizes); ++batch)
      judge_numbers({world, kSizes[batch], rows_of_batch(run.ranks[0].rows("numbers"), batch, world)},
                    think_of_rank_0);
  }
}

// --- allreduce.2

std::string think_of_ring(const Outcome& outcome, const Difference& difference) {
  bool is_on_one_each = true, is_untouched = true;
  for (size_t i = 0; i < outcome.size; ++i) {
    is_on_one_each = is_on_one_each && outcome.ranks_with(0, outcome.ranks.size(), i + 1, i) == 1;
    for (int rank = 0; rank < outcome.world; ++rank)
      is_untouched = is_untouched && outcome.ranks[static_cast<size_t>(rank)][i] == own_number(rank, i);
  }
  if (outcome.is_mean()) return "that is a mean, and the sum is wanted";
  if (difference.is_twice_in())
    return "something is added more than once: in the first half, what comes is added to the chunk that it "
           "is "
           "of, and a lap has P - 1 steps; in the second half it takes the place of what is there";
  if (is_on_one_each)
    return "each number is whole on one rank alone: that is the first half; the second half carries it to "
           "all";
  if (is_untouched) return "do the chunks go round, and is what comes added?";
  if (outcome.ranks_with(0, outcome.ranks.size(), difference.i + 1, difference.i) == 0)
    return "no rank has the whole of it: the first half is too short, or a chunk has gone round before it "
           "was "
           "whole, or what came was not added";
  return "some ranks have the whole of it: it has not come to all";
}

// what a rank sent to whom: to its right alone, and not quite twice its numbers
void judge_traffic(const Row& bytes, int rank, int world, int size) {
  const auto what = format("the sums are right, but with {} ranks and {} numbers rank {}", world, size, rank);
  const int right = (rank + 1) % world, most = 2 * (world - 1) * ((size + world - 1) / world) * 4;
  expect(bytes.size() == static_cast<size_t>(world), what + " does not say what it sent to each");
  for (int to = 0; to < world; ++to)
    expect(to == right || bytes[static_cast<size_t>(to)] == 0,
           format("{} sent to rank {}, and its right is rank {}", what, to, right), {},
           "in a ring everybody sends to one neighbour alone");
  const double count = bytes[static_cast<size_t>(right)];
  expect(count <= most, format("{} sent {} bytes, and a ring sends {} at most", what, shown(count), most),
         {{count < (world - 1) * size * 4, "that is a step too many",
           "after P - 1 steps of P ranks a chunk has been everywhere"},
          {true, "these are all numbers, not a chunk, in a step",
           "chunk(k) is what travels: that is what makes a ring fast"}});
}

LOCKSTEP_JUDGE("allreduce.2", attempt) {
  for (const int world : kWorlds) {
    const auto run = run_threads(attempt, world);
    for (size_t batch = 0; batch < std::size(kSizes); ++batch) {
      judge_numbers({world, kSizes[batch], rows_of_batch(run.ranks[0].rows("numbers"), batch, world)},
                    think_of_ring);
      const auto sent = rows_of_batch(run.ranks[0].rows("sent"), batch, world);
      for (int rank = 0; rank < world; ++rank)
        judge_traffic(sent[static_cast<size_t>(rank)], rank, world, static_cast<int>(kSizes[batch]));
    }
  }
}

// --- allreduce.3

// a value that is often given, and what is said of it
struct GuessedValue {
  double value;
  const char *what, *think;
};

void judge_value(const RankRun& run, const std::string& name, const std::string& named, double wanted,
                 const std::vector<GuessedValue>& values) {
  const double is = run.number(name);
  // seconds a byte are small numbers
  const auto equals = [&](double other) { return std::abs(is - other) <= 1e-6 * std::abs(other); };
  expect(is != 0, format("{}: {} is still 0", named, name), {}, "what it is to be stands above it");
  std::vector<Guess> guesses;
  for (const auto& [value, what, think] : values) guesses.push_back({equals(value), what, think});
  expect(equals(wanted), format("{}: {} gives {}, and it is {}", named, name, shown(is), shown(wanted)),
         guesses);
}

LOCKSTEP_JUDGE("allreduce.3", attempt) {
  const Rows networks = {{4, 1 << 20, 2e-3, 1e9}, {3, 4096, 200e-6, 1e10}, {8, 100e6, 5e-6, 1e11}};
  for (const auto& network : networks) {
    const double ranks = network[0], size = network[1], latency = network[2], bits = network[3];
    const auto named = format("{} ranks, {:.0f} bytes, {} us, {} Gbit/s", ranks, size, shown(latency * 1e6),
                              shown(bits / 1e9));
    const auto run = run_threads_of(attempt, as_words(network), named, named);
    const double beta = 8 / bits, bytes = size * beta, all = (ranks - 1) * bytes;
    judge_value(run.ranks[0], "seconds_a_byte", named, beta,
                {{beta / 8, "that is for a bit, and a byte has 8 bits", "all else is in bytes"},
                 {beta / 64, "that is for an eighth of a bit", "divide by the bytes, not the bits"},
                 {1 / beta, "that is how many bytes go in a second", "turn it round"}});
    judge_value(run.ranks[0], "reduce_broadcast", named, 2 * (latency + all),
                {{latency + all, "that is half of what it takes", "the sums go back the same way"},
                 {2 * (latency + bytes), "that is one message's bytes each way",
                  "how many messages share rank 0's line?"},
                 {2 * (latency + all + bytes), "that is one message too many each way",
                  "rank 0 sends nothing to itself"},
                 {2 * (ranks - 1) * (latency + bytes), "each message has a latency of its own",
                  "messages that come together share one"}});
    const double step = latency + bytes / ranks;
    judge_value(run.ranks[0], "ring", named, 2 * (ranks - 1) * step,
                {{(ranks - 1) * step, "that is one half, and everything goes round twice",
                  "once to add, once to tell"},
                 {2 * ranks * step, "that is P steps a half, and a whole lap has one step less",
                  "after P - 1 steps a chunk has been everywhere"},
                 {2 * (ranks - 1) * (latency + bytes), "that is all n bytes in each step",
                  "a step carries a chunk"}});
    const double betas = (ranks - 1) * (1 - 2 / ranks) * beta;
    judge_value(
        run.ranks[0], "crossover", named, (2 * ranks - 3) * latency / betas,
        {{(2 * ranks - 2) * latency / betas,
          "there the bytes have made good all of the ring's latencies, but all_to_all has a latency, too",
          "subtract it on both sides"},
         {(2 * ranks - 3) * latency / ((ranks - 1) * beta), "as if the ring's bytes took no time",
          "they take 2 (P - 1) / P n beta"}});
  }
}

}  // namespace
}  // namespace lockstep::workshop
