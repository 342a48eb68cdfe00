#include <ATen/Parallel.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "fast/conv.h"

namespace lockstep::kernels {
namespace {

constexpr int kSeen = 4;  // pixels a side, by a window

// Which tap of the output at `k` in its window falls on a pixel of those that the window sees; -1: none.
constexpr int tap_of(int pixel, int k) {
  const int y = pixel / kSeen - k / 2, x = pixel % kSeen - k % 2;
  return y >= 0 && y < 3 && x >= 0 && x < 3 ? 3 * y + x : -1;
}

// visit(pixel's value, k, tap) for all that meet in a window; column by column, as oneDNN adds what lies
// channels last: the forward's sums have its bits.
template <class Visit>
LOCKSTEP_INLINE inline void for_pixels(const float* corner, int64_t row, const Visit& visit) {
  unrolled<kSeen * kSeen>([&](auto i) LOCKSTEP_INLINE {
    constexpr int pixel = i % kSeen * kSeen + i / kSeen;
    const float value = corner[pixel / kSeen * row + pixel % kSeen];
    unrolled<4>([&](auto k) LOCKSTEP_INLINE {
      constexpr int tap = tap_of(pixel, k);
      if constexpr (tap >= 0) visit(value, k, std::integral_constant<int, tap>());
    });
  });
}

// Registers hold the taps of so many channels at once; AVX2 has half as many.
template <int lanes>
constexpr int kAtOnce = lanes == 16 ? 2 : 1;

// work(Lanes, vectors, channel) over all channels from first to last
template <int lanes, class Work>
LOCKSTEP_INLINE inline void for_channels(Lanes<lanes> wide, int64_t first, int64_t last, const Work& work) {
  constexpr int many = kAtOnce<lanes>;
  int64_t channel = first;
  for (; channel + many * lanes <= last; channel += many * lanes) work(wide, Lanes<many>(), channel);
  for (; channel < last; channel += lanes) work(wide, Lanes<1>(), channel);
}

// [out][taps] to [taps][out]
void turn(const float* from, int64_t out, float* to) {
  for (int64_t channel = 0; channel < out; ++channel)
    for (int tap = 0; tap < kTaps; ++tap) to[tap * out + channel] = from[channel * kTaps + tap];
}

// The weights' gradient with AVX-512: the 4 x 4 pixels that a window sees are one register.
#if defined(__x86_64__)

#define LOCKSTEP_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))

constexpr __mmask16 kAll = 0xffff;  // gcc 12 warns of what is without a mask in its own headers
constexpr int kLanes = 16;

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
      const auto live = _mm512_cmpneq_epi32_mask(who, _mm512_set1_epi32(kNoWinner));
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

// What one image gives to nine taps and the bias, [10][out], of 16 or 32 channels, where these begin.
void add_first_gradient_avx512(const ConvShape& shape, const float* padded, const float* gradient,
                               const uint8_t* winner, int channels, float* to) {
  const auto run = channels == kLanes ? add<1> : add<2>;
  run(shape, padded, gradient, winner, to);
}

#endif

// What one image gives to nine taps and the bias, [10][out], of some channels, at which all of these begin.
template <int lanes, int many>
LOCKSTEP_INLINE inline void add_gradient(Lanes<lanes>, Lanes<many>, const ConvShape& shape,
                                         const float* padded, const float* gradient, const uint8_t* winner,
                                         float* to) {
#if defined(__x86_64__)
  if constexpr (lanes == 16)
    return add_first_gradient_avx512(shape, padded, gradient, winner, lanes * many, to);
#endif
  using V = Floats<lanes>;
  V sums[kTaps + 1][many] = {};
  for (int64_t window = 0; window < shape.windows(); ++window, gradient += shape.out, winner += shape.out) {
    Four<lanes> own[many];
    unrolled<many>([&](auto v) LOCKSTEP_INLINE {
      own[v] = spread_over<lanes>(gradient + v * lanes, winner + v * lanes);
      sums[kTaps][v] += (own[v][0] + own[v][1]) + (own[v][2] + own[v][3]);
    });
    for_pixels(padded + shape.corner(window), shape.padded_row(),
               [&](float value, auto k, auto tap) LOCKSTEP_INLINE {
                 unrolled<many>([&](auto v) LOCKSTEP_INLINE { sums[tap][v] += own[v][k] * value; });
               });
  }
  unrolled<(kTaps + 1) * many>([&](auto i) LOCKSTEP_INLINE {
    float* sum = to + i / many * shape.out + i % many * lanes;
    store(sum, load<V>(sum) + sums[i / many][i % many]);
  });
}

}  // namespace

void first_conv_forward(const ConvShape& shape, const float* x, const float* weight, const float* bias,
                        float* output, uint8_t* winner, SimdLevel level) {
  const Scratch<float> taps(kTaps * shape.out);
  turn(weight, shape.out, taps.get());
  at::parallel_for(0, shape.images, 1, [&](int64_t begin, int64_t end) {
    const Scratch<float> padded(shape.padded_size());
    run_at(level, [&](auto lanes) LOCKSTEP_INLINE {
      for (int64_t image = begin; image < end; ++image) {
        pad(x + image * shape.image_size(), shape, padded.get());
        for_channels(lanes, 0, shape.out, [&](auto lanes, auto many, int64_t channel) LOCKSTEP_INLINE {
          using V = Floats<lanes>;
          V w[kTaps][many];
          unrolled<kTaps * many>([&](auto i) LOCKSTEP_INLINE {
            w[i / many][i % many] = load<V>(taps.get() + i / many * shape.out + channel + i % many * lanes);
          });
          for (int64_t window = 0; window < shape.windows(); ++window) {
            Four<lanes> sums[many] = {};
            for_pixels(padded.get() + shape.corner(window), shape.padded_row(),
                       [&](float value, auto k, auto tap) LOCKSTEP_INLINE {
                         unrolled<many>([&](auto v) LOCKSTEP_INLINE { sums[v][k] += w[tap][v] * value; });
                       });
            const int64_t to = (image * shape.windows() + window) * shape.out + channel;
            unrolled<many>([&](auto v) LOCKSTEP_INLINE {
              constexpr int on = v * lanes;
              for (auto& sum : sums[v]) sum += load<V>(bias + channel + on);
              pool_sums<lanes>(sums[v], output + to + on, winner + to + on);
            });
          }
        });
      }
    });
  });
}

void first_conv_backward(const ConvShape& shape, const float* x, const float* gradient, const uint8_t* winner,
                         float* weight, float* bias, SimdLevel level) {
  constexpr int64_t kChannelsAtOnce = 32;
  const int64_t parts = (shape.out + kChannelsAtOnce - 1) / kChannelsAtOnce;
  at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    const Scratch<float> padded(shape.padded_size()), taps((kTaps + 1) * shape.out);
    const int64_t first = begin * kChannelsAtOnce, last = std::min(end * kChannelsAtOnce, shape.out);
    run_at(level, [&](auto lanes) LOCKSTEP_INLINE {
      for (int64_t image = 0; image < shape.images; ++image) {
        pad(x + image * shape.image_size(), shape, padded.get());
        for_channels(lanes, first, last, [&](auto lanes, auto many, int64_t channel) LOCKSTEP_INLINE {
          const int64_t from = image * shape.windows() * shape.out + channel;
          add_gradient(lanes, many, shape, padded.get(), gradient + from, winner + from,
                       taps.get() + channel);
        });
      }
    });
    for (int64_t channel = first; channel < last; ++channel) {
      for (int tap = 0; tap < kTaps; ++tap)
        weight[channel * kTaps + tap] = taps.get()[tap * shape.out + channel];
      bias[channel] = taps.get()[kTaps * shape.out + channel];
    }
  });
}

}  // namespace lockstep::kernels
