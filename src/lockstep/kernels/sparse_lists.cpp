#include "lockstep/kernels/sparse_lists.h"

#include <bit>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "lockstep/kernels/conv_shape.h"

namespace lockstep::kernels {
namespace {

// As bits: a branch on a number that is zero every second time costs more than what it saves.
bool is_zero(float value) {
  return (std::bit_cast<uint32_t>(value) << 1) == 0;
}

#if defined(__x86_64__)

constexpr __mmask16 kAll = 0xffff;  // gcc 12 warns of what is without a mask in its own headers

#define LOCKSTEP_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

LOCKSTEP_AVX512 int64_t list_windows_avx512(const float* values, const uint8_t* winner,
                                            const int32_t* corners, const int32_t* steps, int64_t count,
                                            Listed to) {
  const auto by_winner = _mm512_maskz_loadu_epi32(0xf, steps);
  int64_t found = 0;
  for (int64_t i = 0; i < count; i += 16) {
    const auto inside = static_cast<__mmask16>((1u << std::min<int64_t>(16, count - i)) - 1);
    const auto who = _mm512_maskz_cvtepu8_epi32(inside, _mm_maskz_loadu_epi8(inside, winner + i));
    const auto value = _mm512_maskz_loadu_ps(inside, values + i);
    const auto corner = _mm512_maskz_loadu_epi32(inside, corners + i);
    const auto live = _mm512_mask_cmp_ps_mask(_mm512_cmpneq_epi32_mask(who, _mm512_set1_epi32(kNobody)),
                                              value, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const auto at = _mm512_add_epi32(corner, _mm512_maskz_permutexvar_epi32(inside, who, by_winner));
    _mm512_storeu_si512(to.at + found, _mm512_maskz_compress_epi32(live, at));
    _mm512_storeu_ps(to.values + found, _mm512_maskz_compress_ps(live, value));
    found += std::popcount(live);
  }
  return found;
}

LOCKSTEP_AVX512 void list_channels_avx512(const float* values, int64_t stride, const uint8_t* winner,
                                          int64_t count, int32_t step, const Listed* to, int32_t* counts) {
  const auto lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const auto places = _mm512_mullo_epi32(lane, _mm512_set1_epi32(static_cast<int32_t>(stride)));
  auto at = _mm512_mullo_epi32(lane, _mm512_set1_epi32(step));
  const auto on = _mm512_set1_epi32(16 * step);
  std::fill_n(counts, 4, 0);
  for (int64_t i = 0; i < count; i += 16, at = _mm512_add_epi32(at, on)) {
    const auto value =
        _mm512_mask_i32gather_ps(_mm512_setzero_ps(), kAll, places, values + i * stride, sizeof(float));
    const auto who = _mm512_maskz_cvtepu8_epi32(
        kAll, _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(winner + i))));
    const auto live = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    for (int k = 0; k < 4; ++k) {
      const auto own = _mm512_mask_cmpeq_epi32_mask(live, who, _mm512_set1_epi32(k));
      _mm512_storeu_si512(to[k].at + counts[k], _mm512_maskz_compress_epi32(own, at));
      _mm512_storeu_ps(to[k].values + counts[k], _mm512_maskz_compress_ps(own, value));
      counts[k] += std::popcount(own);
    }
  }
}

#endif

}  // namespace

int64_t list_windows(const float* values, const uint8_t* winner, const int32_t* corners, const int32_t* steps,
                     int64_t count, [[maybe_unused]] SimdLevel level, Listed to) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return list_windows_avx512(values, winner, corners, steps, count, to);
#endif
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t who = winner[i];
    to.at[found] = corners[i] + steps[who % kNobody];
    to.values[found] = values[i];
    found += int{who != kNobody} & int{!is_zero(values[i])};
  }
  return found;
}

void list_channels(const float* values, int64_t stride, const uint8_t* winner, int64_t count, int32_t step,
                   [[maybe_unused]] SimdLevel level, const Listed* to, int32_t* counts) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512)
    return list_channels_avx512(values, stride, winner, count, step, to, counts);
#endif
  int32_t found[kNobody + 1] = {};
  for (int64_t i = 0; i < count; ++i) {
    const float value = values[i * stride];
    const int who = is_zero(value) ? kNobody : winner[i];
    const int32_t at = found[who]++;
    to[who].at[at] = static_cast<int32_t>(i) * step;
    to[who].values[at] = value;
  }
  std::copy_n(found, 4, counts);
}

}  // namespace lockstep::kernels
