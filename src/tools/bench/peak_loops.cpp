#include "tools/bench/peak_loops.h"

#include "lockstep/kernels/vector.h"

namespace lockstep::bench {
namespace {

using kernels::Vector;

// Two units that take four cycles each want eight sums at once; a few more do no harm in 16 registers.
constexpr int kSums = 12;

template <int lanes>
LOCKSTEP_INLINE inline void add_up(int64_t rounds) {
  using Floats = Vector<float, lanes>;
  // the compiler is not to know these
  float tenth = 0.1F, most = 0.9F;
  asm volatile("" : "+m"(tenth), "+m"(most));
  const Floats step = Floats{} + tenth, factor = Floats{} + most;
  Floats sums[kSums] = {};
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = sum * factor + step;
  }
  for (auto& sum : sums) asm volatile("" : : "m"(sum));
}

}  // namespace

double multiply_and_add(int64_t rounds, kernels::SimdLevel level) {
  kernels::run_at(level, [&](auto lanes) LOCKSTEP_INLINE { add_up<decltype(lanes)::value>(rounds); });
  return 2.0 * kSums * lanes_of(level) * static_cast<double>(rounds);
}

void triad(float* a, const float* b, const float* c, int64_t count, kernels::SimdLevel level) {
  kernels::run_at(level, [&](auto lanes) LOCKSTEP_INLINE {
    kernels::for_chunks(lanes, count, [&](auto chunk, int64_t i) LOCKSTEP_INLINE {
      constexpr int kWide = decltype(chunk)::value;
      const auto three = Vector<float, kWide>{} + 3.0F;
      kernels::store_floats<kWide>(
          a + i, kernels::load_floats<kWide>(b + i) + kernels::load_floats<kWide>(c + i) * three);
    });
  });
}

int lanes_of(kernels::SimdLevel level) {
  int count = 0;
  kernels::run_at(level, [&](auto lanes) { count = decltype(lanes)::value; });
  return count;
}

}  // namespace lockstep::bench
