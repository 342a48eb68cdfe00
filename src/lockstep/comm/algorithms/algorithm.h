#pragma once
// The sum over all ranks, on all ranks, by messages alone: the ways to do it, and what each costs.
//
//   lockstep::all_reduce(lockstep::algorithms::ring, messenger, std::span(gradients));

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/algorithms/numbers.h"

namespace lockstep {

/// A way to sum: every rank calls it with as many numbers, and all end with the same bits.
using AllReduce = void(Messenger& messenger, const Numbers& numbers);

/// The ways, a file of comm/algorithms each. Any world, any size.
namespace algorithms {
/// All to rank 0, and from there to all.
void reduce_broadcast(Messenger& messenger, const Numbers& numbers);
/// Everything to everybody at once.
void all_to_all(Messenger& messenger, const Numbers& numbers);
/// Chunks twice round a ring; the bits of gloo's own.
void ring(Messenger& messenger, const Numbers& numbers);
/// Pairs swap everything, then pairs of pairs.
void recursive_doubling(Messenger& messenger, const Numbers& numbers);
/// Pairs swap halves, then quarters, and back.
void halving_doubling(Messenger& messenger, const Numbers& numbers);
/// Up a binomial tree and down.
void tree(Messenger& messenger, const Numbers& numbers);
/// A tree in each node, a ring over the nodes.
void two_level(Messenger& messenger, const Numbers& numbers);
}  // namespace algorithms

/// Hockney's model of a network: a message of n bytes takes alpha + n beta seconds, and to add n bytes takes
/// n gamma.
struct Network {
  double alpha = 0;  ///< seconds
  double beta = 0;   ///< seconds a byte
  double gamma = 0;  ///< seconds a byte
};

/// Who takes part: P ranks on N nodes.
struct Ranks {
  int world = 1;  ///< P
  int nodes = 1;  ///< N
};

/// A row of the table.
struct Algorithm {
  std::string name;                                                      ///< as launch.allreduce has it
  std::string summary;                                                   ///< in a few words
  AllReduce* run;                                                        ///< the sum itself
  double (*seconds)(Ranks ranks, double bytes, const Network& network);  ///< what it costs
  std::string formula;  ///< of `seconds`: P ranks, N nodes, n bytes, in alpha, beta and gamma
  /// Whether its sums have the bits of gloo's own all-reduce. Two numbers give the same sum in either order:
  /// with two ranks all of them do.
  bool (*has_bits_of_gloo)(int world);
};

/// In the order in which they are explained.
const std::vector<Algorithm>& all_reduce_algorithms();
/// InputError, with the nearest name, where there is none of that name.
const Algorithm& find_all_reduce(std::string_view name);

/// data[i] becomes the sum of all ranks' data[i]. Collective.
template <class T>
void all_reduce(AllReduce& algorithm, Messenger& messenger, std::span<T> data) {
  algorithm(messenger, {reinterpret_cast<std::byte*>(data.data()), data.size(), sum_of<T>()});
}

}  // namespace lockstep
