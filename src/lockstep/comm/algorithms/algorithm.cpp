#include "lockstep/comm/algorithms/algorithm.h"

#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

// of ceil(log2(ranks))
int rounds(int ranks) {
  return std::bit_width(static_cast<unsigned>(ranks - 1));
}

// What the ranks beyond a power of two cost: everything to a neighbor, and back.
double folding(int world, double bytes, const Network& net) {
  const bool is_power = std::has_single_bit(static_cast<unsigned>(world));
  return is_power ? 0 : 2 * (net.alpha + bytes * net.beta) + bytes * net.gamma;
}

double star_seconds(Ranks ranks, double bytes, const Network& net) {
  const double others = ranks.world - 1;
  return ranks.world == 1 ? 0 : 2 * net.alpha + others * bytes * (2 * net.beta + net.gamma);
}

double all_to_all_seconds(Ranks ranks, double bytes, const Network& net) {
  const double others = ranks.world - 1;
  return ranks.world == 1 ? 0 : net.alpha + others * bytes * (net.beta + net.gamma);
}

double ring_seconds(Ranks ranks, double bytes, const Network& net) {
  const double others = ranks.world - 1;
  return 2 * others * net.alpha + others / ranks.world * bytes * (2 * net.beta + net.gamma);
}

double doubling_seconds(Ranks ranks, double bytes, const Network& net) {
  const int pairs = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks.world)));
  return rounds(pairs) * (net.alpha + bytes * (net.beta + net.gamma)) + folding(ranks.world, bytes, net);
}

double halving_seconds(Ranks ranks, double bytes, const Network& net) {
  const int pairs = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks.world)));
  const double share = (pairs - 1.0) / pairs;
  return 2 * rounds(pairs) * net.alpha + share * bytes * (2 * net.beta + net.gamma) +
         folding(ranks.world, bytes, net);
}

double tree_seconds(Ranks ranks, double bytes, const Network& net) {
  return rounds(ranks.world) * (2 * net.alpha + bytes * (2 * net.beta + net.gamma));
}

double two_level_seconds(Ranks ranks, double bytes, const Network& net) {
  const int mates = (ranks.world + ranks.nodes - 1) / ranks.nodes;
  return tree_seconds({mates}, bytes, net) + ring_seconds({ranks.nodes}, bytes, net);
}

bool always(int) {
  return true;
}

bool up_to_two(int world) {
  return world <= 2;
}

}  // namespace

const std::vector<Algorithm>& all_reduce_algorithms() {
  static const std::vector<Algorithm> kTable = {
      {"reduce_broadcast", "every rank sends to rank 0, which sends the sum to all",
       algorithms::reduce_broadcast, star_seconds, "2 alpha + (P-1) n (2 beta + gamma)", up_to_two},
      {"all_to_all", "every rank sends everything to every other rank at once", algorithms::all_to_all,
       all_to_all_seconds, "alpha + (P-1) n (beta + gamma)", up_to_two},
      {"ring", "chunks travel twice around a ring", algorithms::ring, ring_seconds,
       "2 (P-1) alpha + (P-1)/P n (2 beta + gamma)", always},
      {"recursive_doubling", "pairs exchange everything, then pairs of pairs", algorithms::recursive_doubling,
       doubling_seconds, "log2 P (alpha + n (beta + gamma))", up_to_two},
      {"halving_doubling", "pairs exchange halves, then quarters, and back", algorithms::halving_doubling,
       halving_seconds, "2 log2 P alpha + (P-1)/P n (2 beta + gamma)", up_to_two},
      {"tree", "sums go up a binomial tree, and results down", algorithms::tree, tree_seconds,
       "log2 P (2 alpha + n (2 beta + gamma))", up_to_two},
      {"two_level", "a tree in each node, a ring over the nodes", algorithms::two_level, two_level_seconds,
       "tree(P/N) + ring(N)", up_to_two},
  };
  return kTable;
}

const Algorithm& find_all_reduce(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& algorithm : all_reduce_algorithms()) {
    if (algorithm.name == name) return algorithm;
    names.push_back(algorithm.name);
  }
  throw InputError(format("unknown all-reduce algorithm '{}'", base::printable(std::string(name))), "",
                   base::did_you_mean(base::nearest(name, names).value_or("")) + "choose one of " +
                       base::join(names, ", "));
}

}  // namespace lockstep
