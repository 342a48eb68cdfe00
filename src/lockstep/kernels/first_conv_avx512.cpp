#include "lockstep/kernels/first_conv_avx512.h"

#include <stdexcept>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "lockstep/kernels/conv_shape.h"

namespace lockstep::kernels {

#if defined(__x86_64__)

namespace {

#define LOCKSTEP_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))

constexpr __mmask16 kAll = 0xffff;  // gcc 12 warns of what is without a mask in its own headers
constexpr int kLanes = 16, kSeen = 4;

LOCKSTEP_AVX512 inline __m512 pixels_at(const float* corner, int64_t row) {
  auto pixels = _mm512_castps128_ps512(_mm_loadu_ps(corner));
  pixels = _mm512_maskz_insertf32x4(kAll, pixels, _mm_loadu_ps(corner + row), 1);
  pixels = _mm512_maskz_insertf32x4(kAll, pixels, _mm_loadu_ps(corner + 2 * row), 2);
  return _mm512_maskz_insertf32x4(kAll, pixels, _mm_loadu_ps(corner + 3 * row), 3);
}

LOCKSTEP_AVX512 inline __m512i winners_at(const uint8_t* winner) {
  return _mm512_maskz_cvtepu8_epi32(
      kAll, _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(winner))));
}

// A channel takes the nine pixels that its winner's taps fall on.
template <int many>
LOCKSTEP_AVX512 void add(const ConvShape& shape, const float* padded, const float* gradient,
                         const uint8_t* winner, float* to) {
  __m512 sums[kTaps + 1][many] = {};
  const auto first_of = _mm512_maskz_set1_epi32(1 << 1, 1) + _mm512_maskz_set1_epi32(1 << 2, kSeen) +
                        _mm512_maskz_set1_epi32(1 << 3, kSeen + 1);
  for (int64_t window = 0; window < shape.windows(); ++window, gradient += shape.out, winner += shape.out) {
    const auto pixels = pixels_at(padded + shape.corner(window), shape.padded_row());
#pragma GCC unroll 2
    for (int v = 0; v < many; ++v) {
      const auto who = winners_at(winner + v * kLanes);
      const auto live = _mm512_cmpneq_epi32_mask(who, _mm512_set1_epi32(kNobody));
      const auto own = _mm512_maskz_loadu_ps(live, gradient + v * kLanes);
      const auto first = _mm512_maskz_permutexvar_epi32(kAll, who, first_of);
      sums[kTaps][v] = _mm512_add_ps(sums[kTaps][v], own);
#pragma GCC unroll 9
      for (int tap = 0; tap < kTaps; ++tap) {
        const auto at = _mm512_add_epi32(first, _mm512_set1_epi32(tap / 3 * kSeen + tap % 3));
        sums[tap][v] = _mm512_fmadd_ps(own, _mm512_maskz_permutexvar_ps(kAll, at, pixels), sums[tap][v]);
      }
    }
  }
#pragma GCC unroll 10
  for (int tap = 0; tap <= kTaps; ++tap)
#pragma GCC unroll 2
    for (int v = 0; v < many; ++v) {
      float* sum = to + tap * shape.out + v * kLanes;
      _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), sums[tap][v]));
    }
}

}  // namespace

void add_first_gradient_avx512(const ConvShape& shape, const float* padded, const float* gradient,
                               const uint8_t* winner, int channels, float* to) {
  const auto run = channels == kLanes ? add<1> : add<2>;
  run(shape, padded, gradient, winner, to);
}

#else

void add_first_gradient_avx512(const ConvShape&, const float*, const float*, const uint8_t*, int, float*) {
  throw std::logic_error("no AVX-512");
}

#endif

}  // namespace lockstep::kernels
