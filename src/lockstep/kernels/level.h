#pragma once
// One loop, compiled for several generations of processors; which one runs is chosen at run time.

#include <ATen/Version.h>

#include <cstdint>
#include <type_traits>

namespace lockstep::kernels {

/// gcc 12 compares vectors of AVX-512 one number at a time, so loops that compare use AVX2, or halves.
enum class SimdLevel { portable, avx2, avx512 };

/// What libtorch's own kernels use here: the widest that this processor has, or ATEN_CPU_CAPABILITY's.
inline SimdLevel level() {
  static const SimdLevel here = [] {
    const auto capability = at::get_cpu_capability();
    if (capability == "AVX512") return SimdLevel::avx512;
    return capability == "AVX2" ? SimdLevel::avx2 : SimdLevel::portable;
  }();
  return here;
}

/// Inlines a function into the loop that calls it, so that it is compiled for the same processor.
#define LOCKSTEP_INLINE __attribute__((always_inline))

/// How many floats a register holds.
template <int count>
using Lanes = std::integral_constant<int, count>;

#if defined(__x86_64__)

template <class Work>
__attribute__((target("avx2,fma"))) void with_avx2(const Work& work) {
  work(Lanes<8>());
}

template <class Work>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))) void with_avx512(const Work& work) {
  work(Lanes<16>());
}

#endif

/// Runs work(Lanes), a lambda marked LOCKSTEP_INLINE, whose loops are compiled for that level.
template <class Work>
void run_at([[maybe_unused]] SimdLevel level, const Work& work) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return with_avx512(work);
  if (level == SimdLevel::avx2) return with_avx2(work);
#endif
  work(Lanes<4>());
}

/// chunk(Lanes, first) over `count` contiguous elements. The last chunk begins earlier instead of being
/// shorter, so it may repeat some; fewer elements than a register holds use narrower registers.
template <int lanes, class Chunk>
LOCKSTEP_INLINE inline void for_chunks(Lanes<lanes> wide, int64_t count, const Chunk& chunk) {
  if constexpr (lanes > 1) {
    if (count < lanes) return for_chunks(Lanes<lanes / 2>(), count, chunk);
  }
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) chunk(wide, i);
  if (i < count) chunk(wide, count - lanes);
}

}  // namespace lockstep::kernels
