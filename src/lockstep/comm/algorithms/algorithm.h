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
AllReduce reduce_broadcast, all_to_all, ring, recursive_doubling, halving_doubling, tree, two_level;
}  // namespace algorithms

/// Hockney's model of a network: a message of n bytes takes alpha + n beta seconds, and to add n bytes takes
/// n gamma.
struct Network {
  double alpha = 0;
  double beta = 0;
  double gamma = 0;
};

/// Who takes part: P ranks on N nodes.
struct Ranks {
  int world = 1;
  int nodes = 1;
};

/// A row of the table.
struct Algorithm {
  std::string name;
  std::string summary;
  AllReduce* run;
  double (*seconds)(Ranks ranks, double bytes, const Network& network);
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
