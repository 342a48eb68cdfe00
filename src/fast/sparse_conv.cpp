#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "fast/bf16.h"
#include "fast/conv.h"

namespace lockstep::kernels {
namespace {

// The gradients behind a pool that are not zero, one after the other: what a loop over them reads.

// Values, and for each how far what it is multiplied by lies from the first, in floats.
struct ValueList {
  int32_t* at;
  float* values;
};

// Memory for lists of up to `most`, and what a register writes beyond their end.
class ValueLists {
 public:
  ValueLists(int64_t count, int64_t most) : most_(most + 16), at_(count * most_), values_(count * most_) {}
  ValueList operator[](int64_t list) const {
    return {at_.get() + list * most_, values_.get() + list * most_};
  }

 private:
  int64_t most_;
  Scratch<int32_t> at_;
  Scratch<float> values_;
};

// As bits: a branch on a number that is zero every second time costs more than what it saves.
bool is_zero(float value) {
  return (std::bit_cast<uint32_t>(value) << 1) == 0;
}

#if defined(__x86_64__)

constexpr __mmask16 kAll = 0xffff;  // gcc 12 warns of what is without a mask in its own headers

#define LOCKSTEP_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

LOCKSTEP_AVX512 int64_t list_windows_avx512(const float* values, const uint8_t* winner,
                                            const int32_t* corners, const int32_t* steps, int64_t count,
                                            ValueList to) {
  const auto by_winner = _mm512_maskz_loadu_epi32(0xf, steps);
  int64_t found = 0;
  for (int64_t i = 0; i < count; i += 16) {
    const auto inside = static_cast<__mmask16>((1u << std::min<int64_t>(16, count - i)) - 1);
    const auto who = _mm512_maskz_cvtepu8_epi32(inside, _mm_maskz_loadu_epi8(inside, winner + i));
    const auto value = _mm512_maskz_loadu_ps(inside, values + i);
    const auto corner = _mm512_maskz_loadu_epi32(inside, corners + i);
    const auto live = _mm512_mask_cmp_ps_mask(_mm512_cmpneq_epi32_mask(who, _mm512_set1_epi32(kNoWinner)),
                                              value, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const auto at = _mm512_add_epi32(corner, _mm512_maskz_permutexvar_epi32(inside, who, by_winner));
    _mm512_storeu_si512(to.at + found, _mm512_maskz_compress_epi32(live, at));
    _mm512_storeu_ps(to.values + found, _mm512_maskz_compress_ps(live, value));
    found += std::popcount(live);
  }
  return found;
}

LOCKSTEP_AVX512 void list_channels_avx512(const float* values, int64_t stride, const uint8_t* winner,
                                          int64_t count, int32_t step, const ValueList* to, int32_t* counts) {
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

// Of windows side by side those that have a gradient: at[i] = corners[i] + steps[winner[i]]. Their number.
int64_t list_windows(const float* values, const uint8_t* winner, const int32_t* corners, const int32_t* steps,
                     int64_t count, [[maybe_unused]] SimdLevel level, ValueList to) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return list_windows_avx512(values, winner, corners, steps, count, to);
#endif
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t who = winner[i];
    to.at[found] = corners[i] + steps[who % kNoWinner];
    to.values[found] = values[i];
    found += int{who != kNoWinner} & int{!is_zero(values[i])};
  }
  return found;
}

// Of a window's channels those that have a gradient, a list for each place that wins, at = channel * step. A
// channel's value is `stride` from the next one's; there are multiples of 16. Writes counts[4].
void list_channels(const float* values, int64_t stride, const uint8_t* winner, int64_t count, int32_t step,
                   [[maybe_unused]] SimdLevel level, const ValueList* to, int32_t* counts) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512)
    return list_channels_avx512(values, stride, winner, count, step, to, counts);
#endif
  int32_t found[kNoWinner + 1] = {};
  for (int64_t i = 0; i < count; ++i) {
    const float value = values[i * stride];
    const int who = is_zero(value) ? kNoWinner : winner[i];
    const int32_t at = found[who]++;
    to[who].at[at] = static_cast<int32_t>(i) * step;
    to[who].values[at] = value;
  }
  std::copy_n(found, 4, counts);
}

// How many vectors of input channels a sum holds at once: nine taps of each, as registers go.
template <int lanes>
constexpr int kVectors = lanes == 16 ? 2 : 1;

// The gradients of one output channel of one image that are not zero, and where what they are of begins.
class Channel {
 public:
  explicit Channel(const ConvShape& shape)
      : shape_(shape),
        lists_(1, shape.windows()),
        list_(lists_[0]),
        corners_(shape.windows()),
        turned_(shape.out * shape.windows()),
        rounded_(shape.windows() + 1) {
    for (int64_t window = 0; window < shape.windows(); ++window)
      corners_.get()[window] = static_cast<int32_t>(shape.corner(window));
    for (int k = 0; k < kNoWinner; ++k)
      steps_[k] = static_cast<int32_t>(k / 2 * shape.padded_row() + k % 2 * shape.in);
  }

  // The winners of an image, for channels from begin to end
  LOCKSTEP_INLINE void turn_winners(const PooledGradient& gradient, int64_t image, int64_t begin,
                                    int64_t end) {
    const int64_t windows = shape_.windows();
    turn(Lanes<16>(), gradient.winner + image * windows * shape_.out + begin, shape_.out, windows,
         end - begin, turned_.get() + begin * windows);
  }

  void read(const PooledGradient& gradient, int64_t image, int64_t out, SimdLevel level) {
    const int64_t windows = shape_.windows();
    count_ = list_windows(gradient.values + (image * shape_.out + out) * windows,
                          turned_.get() + out * windows, corners_.get(), steps_, windows, level, list_);
  }

  // The same two by two: one that is left over has another of value zero.
  void round() {
    round_to_bf16(list_.values, count_, rounded_.get());
    if (count_ % 2 == 0) return;
    rounded_.get()[count_] = 0;
    list_.at[count_] = list_.at[count_ - 1];
  }
  int64_t pairs() const { return (count_ + 1) / 2; }
  const uint16_t* rounded() const { return rounded_.get(); }

  // In four sums, which do not wait for each other.
  float sum() const {
    Floats<4> sums = {};
    int64_t i = 0;
    for (; i + 4 <= count_; i += 4) sums += load<Floats<4>>(list_.values + i);
    for (; i < count_; ++i) sums[i % 4] += list_.values[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

  int64_t count() const { return count_; }
  const ValueList& list() const { return list_; }

 private:
  const ConvShape& shape_;
  ValueLists lists_;
  ValueList list_;
  Scratch<int32_t> corners_;
  Scratch<uint8_t> turned_;
  Scratch<uint16_t> rounded_;
  int32_t steps_[kNoWinner] = {};
  int64_t count_ = 0;
};

template <int lanes, int many>
LOCKSTEP_INLINE inline void add_taps(const ConvShape& shape, const Channel& channel, const float* x,
                                     float* to) {
  using V = Floats<lanes>;
  const int64_t row = shape.padded_row(), step = shape.in;
  V sums[kTaps][many] = {};
  const auto [places, values] = channel.list();
  for (int64_t i = 0; i < channel.count(); ++i) {
    const float* corner = x + places[i];
    const float value = values[i];
    unrolled<kTaps>([&](auto tap) LOCKSTEP_INLINE {
      const float* from = corner + tap / 3 * row + tap % 3 * step;
      unrolled<many>([&](auto v) LOCKSTEP_INLINE { sums[tap][v] += load<V>(from + v * lanes) * value; });
    });
  }
  unrolled<kTaps * many>([&](auto i) LOCKSTEP_INLINE {
    float* sum = to + i / many * step + i % many * lanes;
    store(sum, load<V>(sum) + sums[i / many][i % many]);
  });
}

// An image as a list's places count it, and what is multiplied at them.
class PaddedFloats {
 public:
  explicit PaddedFloats(const ConvShape& shape) : shape_(shape), image_(shape.padded_size()) {}

  void take(const float* image) { pad(image, shape_, image_.get()); }

  template <int lanes>
  LOCKSTEP_INLINE void add(Channel& channel, float* to) const {
    constexpr int many = kVectors<lanes>;
    int64_t in = 0;
    for (; in + many * lanes <= shape_.in; in += many * lanes)
      add_taps<lanes, many>(shape_, channel, image_.get() + in, to + in);
    for (; in < shape_.in; in += lanes) add_taps<lanes, 1>(shape_, channel, image_.get() + in, to + in);
  }
  static void finish(float*, int64_t) {}

 private:
  const ConvShape& shape_;
  Scratch<float> image_;
};

class PaddedPairs {
 public:
  explicit PaddedPairs(const ConvShape& shape) : shape_(shape), image_(shape.padded_size()) {}

  void take(const float* image) { pad(image, shape_, image_.get(), round_to_bf16); }

  template <int lanes>
  void add(Channel& channel, float* to) const {
    channel.round();
    for (int64_t in = 0; in < shape_.in; in += kPairChannels)
      add_pairs(channel.list().at, channel.rounded(), channel.pairs(), image_.get() + in,
                {shape_.padded_row(), shape_.in}, to + in, {3 * shape_.in, shape_.in});
  }
  static void finish(float* weight, int64_t count) {
    for (int64_t i = 0; i < count; i += kPairChannels) in_order(weight + i);
  }

 private:
  const ConvShape& shape_;
  Scratch<uint16_t> image_;
};

// The gradients of one image, window by window, by who won; the last list is of those that nobody has.
class Windows {
 public:
  explicit Windows(const ConvShape& shape)
      : shape_(shape), lists_(shape.windows() * kLists, shape.out), counts_(shape.windows() * kLists) {}

  void read(const PooledGradient& gradient, int64_t image, int32_t step, SimdLevel level) {
    const int64_t windows = shape_.windows(), channels = shape_.out;
    const float* values = gradient.values + image * channels * windows;
    const uint8_t* winner = gradient.winner + image * windows * channels;
    for (int64_t window = 0; window < windows; ++window) {
      ValueList to[kLists];
      for (int k = 0; k < kLists; ++k) to[k] = list(window, k);
      list_channels(values + window, windows, winner + window * channels, channels, step, level, to,
                    counts_.get() + window * kLists);
    }
  }

  ValueList list(int64_t window, int k) const { return lists_[window * kLists + k]; }
  int32_t count(int64_t window, int k) const { return counts_.get()[window * kLists + k]; }

 private:
  static constexpr int kLists = kNoWinner + 1;
  const ConvShape& shape_;
  ValueLists lists_;
  Scratch<int32_t> counts_;
};

// weight [out][taps][lanes]; x: some channels of the pixels that the window sees
template <int lanes>
LOCKSTEP_INLINE inline void add_window(const ConvShape& shape, const Windows& windows, int64_t window,
                                       const float* weight, float* x) {
  using V = Floats<lanes>;
  constexpr int side = 4;
  V sums[side * side] = {};
  unrolled<4>([&](auto k) LOCKSTEP_INLINE {
    const auto [places, values] = windows.list(window, k);
    const int32_t count = windows.count(window, k);
    for (int32_t i = 0; i < count; ++i) {
      const float* from = weight + places[i];
      const float value = values[i];
      unrolled<kTaps>([&](auto tap) LOCKSTEP_INLINE {
        constexpr int pixel = (tap / 3 + k / 2) * side + tap % 3 + k % 2;
        sums[pixel] += load<V>(from + tap * lanes) * value;
      });
    }
  });
  const int64_t row = shape.padded_row(), step = shape.in;
  unrolled<side * side>([&](auto pixel) LOCKSTEP_INLINE {
    float* to = x + pixel / side * row + pixel % side * step;
    store(to, load<V>(to) + sums[pixel]);
  });
}

// [out][taps][in] to [in / lanes][out][taps][lanes]
void block_weights(const ConvShape& shape, const float* weight, int64_t lanes, float* to) {
  for (int64_t block = 0; block < shape.in / lanes; ++block)
    for (int64_t row = 0; row < shape.out * kTaps; ++row, to += lanes)
      std::copy_n(weight + row * shape.in + block * lanes, lanes, to);
}

template <class Padded>
void weight_gradient(const ConvShape& shape, const float* x, const PooledGradient& gradient, float* weight,
                     float* bias, SimdLevel level) {
  constexpr int64_t kChannelsAtOnce = 8;
  const int64_t size = kTaps * shape.in;
  std::fill_n(weight, shape.out * size, 0.0f);
  std::fill_n(bias, shape.out, 0.0f);
  at::parallel_for(0, shape.out, kChannelsAtOnce, [&](int64_t begin, int64_t end) {
    Padded padded(shape);
    Channel channel(shape);
    run_at(level, [&](auto lanes) LOCKSTEP_INLINE {
      for (int64_t image = 0; image < shape.images; ++image) {
        padded.take(x + image * shape.image_size());
        channel.turn_winners(gradient, image, begin, end);
        for (int64_t out = begin; out < end; ++out) {
          channel.read(gradient, image, out, level);
          bias[out] += channel.sum();
          padded.template add<lanes>(channel, weight + out * size);
        }
      }
    });
    Padded::finish(weight + begin * size, (end - begin) * size);
  });
}

// The input's gradient by products of bf16.

// [out][taps][in], as add_pairs() brings in order what it adds up
void round_weights(const ConvShape& shape, const float* weight, uint16_t* to) {
  const int64_t size = shape.out * kTaps * shape.in;
  const Scratch<float> turned(size);
  std::copy_n(weight, size, turned.get());
  for (int64_t i = 0; i < size; i += kPairChannels) in_order(turned.get() + i);
  round_to_bf16(turned.get(), size, to);
}

// The gradients of one image that are not zero, two by two: window by window, by who won.
class WindowPairs {
 public:
  explicit WindowPairs(const ConvShape& shape)
      : size_(shape.windows() * shape.out),
        windows_(shape.windows()),
        out_(shape.out),
        turned_(size_),
        rounded_(size_),
        lists_(2 * kNoWinner * room()) {
    for (int k = 0; k < kNoWinner; ++k)
      list_[k] = {lists_.get() + 2 * k * room(), lists_.get() + (2 * k + 1) * room()};
  }

  void take(const PooledGradient& gradient, int64_t image) {
    run_at(SimdLevel::avx512, [&](auto lanes) LOCKSTEP_INLINE {
      turn(lanes, gradient.values + image * size_, windows_, out_, windows_, turned_.get());
    });
    round_to_bf16(turned_.get(), size_, rounded_.get());
    winner_ = gradient.winner + image * size_;
  }

  void read(int64_t window) {
    list_pairs(rounded_.get() + window * out_, winner_ + window * out_, out_, list_, pairs_);
  }
  const PairList& list(int k) const { return list_[k]; }
  int64_t pairs(int k) const { return pairs_[k]; }

 private:
  int64_t room() const { return out_ + kPairChannels; }

  int64_t size_, windows_, out_;
  Scratch<float> turned_;
  Scratch<uint16_t> rounded_, lists_;
  PairList list_[kNoWinner];
  int64_t pairs_[kNoWinner] = {};
  const uint8_t* winner_ = nullptr;
};

// Channels in multiples of 32, and a number of 16 bits for each that goes out.
bool fits_pairs(const ConvShape& shape) {
  return shape.in % kPairChannels == 0 && shape.out % kPairChannels == 0 &&
         shape.out <= std::numeric_limits<uint16_t>::max();
}

// For what fits_pairs(), where multiplies_bf16().
void sparse_input_gradient_of_pairs(const ConvShape& shape, const PooledGradient& gradient,
                                    const float* weight, float* x) {
  const Scratch<uint16_t> weights(shape.out * kTaps * shape.in);
  round_weights(shape, weight, weights.get());
  const TapStrides taps = {3 * shape.in, shape.in}, pixels = {shape.padded_row(), shape.in};
  at::parallel_for(0, shape.images, 1, [&](int64_t begin, int64_t end) {
    const Scratch<float> padded(shape.padded_size());
    WindowPairs windows(shape);
    for (int64_t image = begin; image < end; ++image) {
      windows.take(gradient, image);
      std::fill_n(padded.get(), shape.padded_size(), 0.0f);
      for (int64_t window = 0; window < shape.windows(); ++window) {
        windows.read(window);
        for (int k = 0; k < kNoWinner; ++k) {
          float* to = padded.get() + shape.corner(window) + k / 2 * pixels.row + k % 2 * pixels.step;
          for (int64_t in = 0; windows.pairs(k) > 0 && in < shape.in; in += kPairChannels)
            add_pairs(windows.list(k), kTaps * shape.in, windows.pairs(k), weights.get() + in, taps, to + in,
                      pixels);
        }
      }
      unpad(padded.get(), shape, x + image * shape.image_size());
    }
  });
}

}  // namespace

void sparse_weight_gradient(const ConvShape& shape, const float* x, const PooledGradient& gradient,
                            float* weight, float* bias, SimdLevel level, Products products) {
  const bool of_pairs = products == Products::bf16 && shape.in % kPairChannels == 0;
  const auto run = of_pairs ? weight_gradient<PaddedPairs> : weight_gradient<PaddedFloats>;
  run(shape, x, gradient, weight, bias, level);
}

void sparse_input_gradient(const ConvShape& shape, const PooledGradient& gradient, const float* weight,
                           float* x, SimdLevel level, Products products) {
  if (products == Products::bf16 && fits_pairs(shape))
    return sparse_input_gradient_of_pairs(shape, gradient, weight, x);
  const Scratch<float> weights(shape.out * kTaps * shape.in);
  run_at(level, [&](auto lanes) LOCKSTEP_INLINE { block_weights(shape, weight, lanes, weights.get()); });
  at::parallel_for(0, shape.images, 1, [&](int64_t begin, int64_t end) {
    const Scratch<float> padded(shape.padded_size());
    Windows windows(shape);
    run_at(level, [&](auto lanes) LOCKSTEP_INLINE {
      for (int64_t image = begin; image < end; ++image) {
        windows.read(gradient, image, kTaps * lanes, level);
        std::fill_n(padded.get(), shape.padded_size(), 0.0f);
        for (int64_t in = 0; in < shape.in; in += lanes)
          for (int64_t window = 0; window < shape.windows(); ++window)
            add_window<lanes>(shape, windows, window, weights.get() + shape.out * kTaps * in,
                              padded.get() + in + shape.corner(window));
        unpad(padded.get(), shape, x + image * shape.image_size());
      }
    });
  });
}

}  // namespace lockstep::kernels
