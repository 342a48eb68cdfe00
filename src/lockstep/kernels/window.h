#pragma once
// A pool's window in registers: its four sums to one number, and one gradient back to its four.

#include <array>

#include "lockstep/kernels/vector.h"

namespace lockstep::kernels {

/// Who wins where relu stopped all four.
constexpr uint8_t kNobody = 4;

template <int lanes>
using Floats = Vector<float, lanes>;
template <int lanes>
using Ints = Vector<int32_t, lanes>;
/// Of each window, in the order of reading.
template <int lanes>
using Four = std::array<Floats<lanes>, 4>;

// What compares does so in registers of eight.
constexpr int kCompared = 8;

/// relu(max), and whose it is: the first of equal ones. What is no number wins.
template <int lanes>
LOCKSTEP_INLINE inline void pool_sums(const Four<lanes>& sums, float* out, uint8_t* winner) {
  if constexpr (lanes > kCompared) {
    constexpr int half = lanes / 2;
    pool_sums<half>({low(sums[0]), low(sums[1]), low(sums[2]), low(sums[3])}, out, winner);
    pool_sums<half>({high(sums[0]), high(sums[1]), high(sums[2]), high(sums[3])}, out + half, winner + half);
  } else {
    auto best = sums[0];
    Ints<lanes> at = {};
    for (int k = 1; k < 4; ++k) {
      const auto wins = (sums[k] > best) | is_no_number(sums[k]);
      best = wins ? sums[k] : best;
      at = wins ? at * 0 + k : at;
    }
    const Floats<lanes> zero = {};
    store(out, best < zero ? zero : best);
    store_bytes<lanes>(winner, best <= zero ? at * 0 + kNobody : at);
  }
}

/// The gradient where it comes from, zero at the other three.
template <int lanes>
LOCKSTEP_INLINE inline Four<lanes> spread_over(const float* gradient, const uint8_t* winner) {
  if constexpr (lanes > kCompared) {
    constexpr int half = lanes / 2;
    const auto one = spread_over<half>(gradient, winner);
    const auto other = spread_over<half>(gradient + half, winner + half);
    return {joined(one[0], other[0]), joined(one[1], other[1]), joined(one[2], other[2]),
            joined(one[3], other[3])};
  } else {
    const auto own = load<Floats<lanes>>(gradient);
    const auto who = load_bytes<lanes>(winner);
    Four<lanes> four;
    for (int k = 0; k < 4; ++k) four[k] = who == k ? own : Floats<lanes>{};
    return four;
  }
}

}  // namespace lockstep::kernels
