#pragma once
// All-reduce (the sum over all ranks, on all ranks) by messages: the algorithms, and what each costs.
//
//   lockstep::all_reduce(lockstep::algorithms::ring, messenger, std::span(gradients));

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/algorithms/messenger.h"

namespace lockstep {

// What an all-reduce works on: numbers in a row, and how two of them become one.

/// Element by element: out[i] = (sources[0][i] op sources[1][i]) op ...; out may be one of the sources.
struct Operation {
  std::size_t item_bytes = 0;  ///< of one number
  void (*combine)(const std::byte* const* sources, std::size_t count, std::byte* out,
                  std::size_t items) = nullptr;  ///< in the order of the sources
};

/// The sum of numbers of one type.
template <class T>
Operation sum_of() {
  return {sizeof(T),
          [](const std::byte* const* sources, std::size_t count, std::byte* out, std::size_t items) {
            auto* sum = reinterpret_cast<T*>(out);
            for (std::size_t i = 0; i < items; ++i) {
              T value = reinterpret_cast<const T*>(sources[0])[i];
              for (std::size_t s = 1; s < count; ++s)
                value = static_cast<T>(value + reinterpret_cast<const T*>(sources[s])[i]);
              sum[i] = value;
            }
          }};
}

/// A rank's own numbers, which become the result.
struct Numbers {
  std::byte* data;      ///< the first of them
  std::size_t items;    ///< how many
  Operation operation;  ///< combines two numbers into one

  /// The bytes of items `begin` to `end`.
  std::span<std::byte> bytes(std::size_t begin, std::size_t end) const {
    return {data + begin * operation.item_bytes, (end - begin) * operation.item_bytes};
  }
  /// All of them.
  std::span<std::byte> bytes() const { return bytes(0, items); }
  /// Items `begin` to `end` as numbers of their own.
  Numbers part(std::size_t begin, std::size_t end) const {
    return {bytes(begin, end).data(), end - begin, operation};
  }
  /// this = this op others: `this` is the left operand. Ranks that must agree to the last bit add the numbers
  /// in the same order.
  void add(std::span<const std::byte> others) const { combine(data, others.data()); }
  /// this = others op this.
  void add_to(std::span<const std::byte> others) const { combine(others.data(), data); }

 private:
  void combine(const std::byte* first, const std::byte* second) const {
    const std::byte* sources[] = {first, second};
    if (items > 0) operation.combine(sources, 2, data, items);
  }
};

}  // namespace lockstep

namespace lockstep {

/// An all-reduce: every rank calls it with the same count of numbers, and all end with the same bits.
using AllReduce = void(Messenger& messenger, const Numbers& numbers);

/// The algorithms, one file of comm/algorithms each, for any world size and any count of numbers.
namespace algorithms {
/// Reduces on rank 0, then broadcasts.
void reduce_broadcast(Messenger& messenger, const Numbers& numbers);
/// Every rank sends everything to every other rank at once.
void all_to_all(Messenger& messenger, const Numbers& numbers);
/// Chunks pass twice around a ring; the same bits as gloo's all-reduce.
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

/// The participants: P ranks on N nodes.
struct Ranks {
  int world = 1;  ///< P
  int nodes = 1;  ///< N
};

/// A row of the table.
struct Algorithm {
  std::string name;                                                      ///< the value of launch.allreduce
  std::string summary;                                                   ///< one line
  AllReduce* run;                                                        ///< the sum itself
  double (*seconds)(Ranks ranks, double bytes, const Network& network);  ///< what it costs
  std::string formula;  ///< of `seconds`: P ranks, N nodes, n bytes, in alpha, beta and gamma
  /// Whether its sums have the bits of gloo's all-reduce. With two ranks all have, because addition is
  /// commutative.
  bool (*has_bits_of_gloo)(int world);
};

/// In the order in which they are explained.
const std::vector<Algorithm>& all_reduce_algorithms();
/// The algorithm of this name. InputError, with the nearest name, if there is none.
const Algorithm& find_all_reduce(std::string_view name);

/// data[i] becomes the sum of all ranks' data[i]. Collective.
template <class T>
void all_reduce(AllReduce& algorithm, Messenger& messenger, std::span<T> data) {
  algorithm(messenger, {reinterpret_cast<std::byte*>(data.data()), data.size(), sum_of<T>()});
}

}  // namespace lockstep
