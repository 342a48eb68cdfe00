#include "fast/bf16.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "fast/conv.h"
#include "lockstep/kernels/level.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::kernels {

#if defined(__x86_64__)

#define LOCKSTEP_BF16 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512bf16,avx2,fma")))

namespace {

constexpr int kSide = 3, kVectors = kPairChannels / kPairBlock;

// Read once, though it is used twice: gcc would rather read it again.
LOCKSTEP_BF16 inline __m512i load(const uint16_t* from) {
  __m512i numbers = _mm512_loadu_si512(from);
  asm("" : "+v"(numbers));
  return numbers;
}

LOCKSTEP_BF16 inline __m512 add_products(__m512 sums, __m512i one, __m512i other) {
  return _mm512_dpbf16_ps(sums, (__m512bh)one, (__m512bh)other);
}

// In each number of 32 bits
LOCKSTEP_BF16 inline __m512i everywhere(const uint16_t* pair) {
  int32_t both;
  std::memcpy(&both, pair, sizeof both);
  return _mm512_set1_epi32(both);
}

}  // namespace

bool multiplies_bf16() {
  static const bool here = level() == SimdLevel::avx512 && __builtin_cpu_supports("avx512bf16") &&
                           __builtin_cpu_supports("avx512vbmi2");
  return here;
}

LOCKSTEP_BF16 void round_to_bf16(const float* from, int64_t count, uint16_t* to) {
  for (int64_t i = 0; i < count; i += kPairBlock) {
    const auto mask = static_cast<__mmask16>((1U << std::min<int64_t>(count - i, kPairBlock)) - 1);
    _mm256_mask_storeu_epi16(to + i, mask,
                             (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from + i)));
  }
}

LOCKSTEP_BF16 void transform_pixels(const float* corner, int64_t row, int64_t channels, uint16_t* to) {
  constexpr int side = 4;
  for (int64_t done = 0; done < channels;
       done += kPairBlock, corner += kPairBlock, to += kPairTiles * kPairBlock) {
    __m512 rows[side][side];
#pragma GCC unroll 4
    for (int y = 0; y < side; ++y) {
      const float* from = corner + y * row;
      const __m512 a = _mm512_loadu_ps(from), b = _mm512_loadu_ps(from + channels),
                   c = _mm512_loadu_ps(from + 2 * channels), d = _mm512_loadu_ps(from + 3 * channels);
      rows[y][0] = a - c, rows[y][1] = b + c, rows[y][2] = c - b, rows[y][3] = b - d;
    }
#pragma GCC unroll 4
    for (int x = 0; x < side; ++x) {
      const __m512 a = rows[0][x], b = rows[1][x], c = rows[2][x], d = rows[3][x];
      const __m512 column[side] = {a - c, b + c, c - b, b - d};
#pragma GCC unroll 4
      for (int y = 0; y < side; ++y)
        _mm256_storeu_si256((__m256i*)(to + (side * y + x) * kPairTiles * channels),
                            (__m256i)_mm512_cvtneps_pbh(column[y]));
    }
  }
}

LOCKSTEP_BF16 void multiply_pairs(const uint16_t* x, const uint16_t* weight, int64_t blocks, float* to) {
  __m512 sums[kPairTiles][kVectors] = {};
  for (int64_t block = 0; block < blocks; ++block, x += kPairTiles * kPairBlock)
    for (int i = 0; i < kPairBlock; i += 2, weight += 2 * kPairChannels) {
      const __m512i one = load(weight), other = load(weight + kPairChannels);
#pragma GCC unroll 14
      for (int tile = 0; tile < kPairTiles; ++tile) {
        const __m512i pair = everywhere(x + tile * kPairBlock + i);
        sums[tile][0] = add_products(sums[tile][0], one, pair);
        sums[tile][1] = add_products(sums[tile][1], other, pair);
      }
    }
#pragma GCC unroll 14
  for (int tile = 0; tile < kPairTiles; ++tile, to += kPairChannels) {
    _mm512_storeu_ps(to, sums[tile][0]);
    _mm512_storeu_ps(to + kPairBlock, sums[tile][1]);
  }
}

namespace {

// The channels of two places are zipped within 128 bits, as the processor does it: in_order() undoes that.
template <class Place>
LOCKSTEP_BF16 LOCKSTEP_INLINE inline void add(const Place* places, int64_t apart, const uint16_t* values,
                                              int64_t count, const uint16_t* x, TapStrides of_x, float* to,
                                              TapStrides of_sums) {
  __m512 low[kTaps] = {}, high[kTaps] = {};
  for (int64_t i = 0; i < 2 * count; i += 2) {
    const uint16_t *one = x + places[i] * apart, *other = x + places[i + 1] * apart;
    const __m512i pair = everywhere(values + i);
#pragma GCC unroll 9
    for (int tap = 0; tap < kTaps; ++tap) {
      const int64_t away = tap / kSide * of_x.row + tap % kSide * of_x.step;
      const __m512i a = load(one + away), b = load(other + away);
      low[tap] = add_products(low[tap], _mm512_unpacklo_epi16(a, b), pair);
      high[tap] = add_products(high[tap], _mm512_unpackhi_epi16(a, b), pair);
    }
  }
#pragma GCC unroll 9
  for (int tap = 0; tap < kTaps; ++tap) {
    float* sum = to + tap / kSide * of_sums.row + tap % kSide * of_sums.step;
    _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), low[tap]));
    _mm512_storeu_ps(sum + kPairBlock, _mm512_add_ps(_mm512_loadu_ps(sum + kPairBlock), high[tap]));
  }
}

}  // namespace

LOCKSTEP_BF16 void add_pairs(const int32_t* places, const uint16_t* values, int64_t count, const uint16_t* x,
                             TapStrides of_x, float* to, TapStrides of_sums) {
  add(places, 1, values, count, x, of_x, to, of_sums);
}

LOCKSTEP_BF16 void add_pairs(const PairList& list, int64_t apart, int64_t count, const uint16_t* x,
                             TapStrides of_x, float* to, TapStrides of_sums) {
  add(list.places, apart, list.values, count, x, of_x, to, of_sums);
}

LOCKSTEP_BF16 void list_pairs(const uint16_t* gradient, const uint8_t* winner, int64_t channels,
                              const PairList* to, int64_t* pairs) {
  alignas(64) static constexpr auto kCounted = [] {
    std::array<uint16_t, kPairChannels> counted{};
    for (size_t i = 0; i < kPairChannels; ++i) counted[i] = static_cast<uint16_t>(i);
    return counted;
  }();
  constexpr int places = 4;
  const __m512i magnitude = _mm512_set1_epi16(0x7fff), on = _mm512_set1_epi16(kPairChannels);
  __m512i at = load(kCounted.data());
  int64_t counts[places] = {};
  for (int64_t i = 0; i < channels; i += kPairChannels, at = _mm512_add_epi16(at, on)) {
    const __m512i value = load(gradient + i);
    const __m256i who = _mm256_loadu_si256((const __m256i*)(winner + i));
    const __mmask32 live = _mm512_test_epi16_mask(value, magnitude);
    for (int k = 0; k < places; ++k) {
      const __mmask32 own = _mm256_mask_cmpeq_epi8_mask(live, who, _mm256_set1_epi8(static_cast<char>(k)));
      _mm512_storeu_si512(to[k].places + counts[k], _mm512_maskz_compress_epi16(own, at));
      _mm512_storeu_si512(to[k].values + counts[k], _mm512_maskz_compress_epi16(own, value));
      counts[k] += std::popcount(own);
    }
  }
  for (int k = 0; k < places; ++k) {
    pairs[k] = (counts[k] + 1) / 2;
    if (counts[k] % 2 == 0) continue;
    to[k].places[counts[k]] = to[k].places[counts[k] - 1];
    to[k].values[counts[k]] = 0;
  }
}

#else

bool multiplies_bf16() {
  return false;
}
void round_to_bf16(const float*, int64_t, uint16_t*) {
  throw std::logic_error("no AVX512_BF16");
}
void transform_pixels(const float*, int64_t, int64_t, uint16_t*) {
  throw std::logic_error("no AVX512_BF16");
}
void multiply_pairs(const uint16_t*, const uint16_t*, int64_t, float*) {
  throw std::logic_error("no AVX512_BF16");
}
void add_pairs(const int32_t*, const uint16_t*, int64_t, const uint16_t*, TapStrides, float*, TapStrides) {
  throw std::logic_error("no AVX512_BF16");
}
void add_pairs(const PairList&, int64_t, int64_t, const uint16_t*, TapStrides, float*, TapStrides) {
  throw std::logic_error("no AVX512_BF16");
}
void list_pairs(const uint16_t*, const uint8_t*, int64_t, const PairList*, int64_t*) {
  throw std::logic_error("no AVX512_BF16");
}

#endif

// Four of each eight are among the first sixteen sums, the other four among the second.
void in_order(float* channels) {
  std::array<float, kPairChannels> zipped;
  std::copy_n(channels, kPairChannels, zipped.begin());
  for (size_t channel = 0; channel < kPairChannels; ++channel)
    channels[channel] = zipped[channel % 8 / 4 * kPairBlock + channel / 8 * 4 + channel % 4];
}

}  // namespace lockstep::kernels
