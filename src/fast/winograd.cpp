#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <type_traits>

#include "fast/bf16.h"
#include "fast/conv.h"

namespace lockstep::kernels {
namespace {

constexpr int kSide = 4, kPlaces = kSide * kSide;  // of a tile, in Winograd's domain

// How many tiles are multiplied at once, and by how many vectors of output channels: as registers go.
template <int lanes>
constexpr int kTiles = lanes == 16 ? 14 : 6;
constexpr int kVectors = 2;

// From four numbers of a row or column of pixels
template <class V>
LOCKSTEP_INLINE inline std::array<V, 4> from_pixels(V a, V b, V c, V d) {
  return {a - c, b + c, c - b, b - d};
}

// From three of weights
template <class T>
std::array<T, 4> from_weights(T a, T b, T c) {
  return {a, (a + b + c) / 2, (a - b + c) / 2, c};
}

// And back, to two
template <class V>
LOCKSTEP_INLINE inline std::array<V, 2> to_pixels(V a, V b, V c, V d) {
  return {a + b + c, b - c - d};
}

void put(float* to, float value) {
  *to = value;
}
void put(uint16_t* to, float value) {
  *to = c10::detail::round_to_nearest_even(value);
}

// [out][taps][in] to [out / group][places][in][group], or of bf16 to [..][in / 2][group][2]
template <class Number>
void transform_weights(const ConvShape& shape, const float* weight, int64_t group, Number* to) {
  constexpr int64_t pair = std::is_same_v<Number, uint16_t> ? 2 : 1;
  for (int64_t out = 0; out < shape.out; ++out)
    for (int64_t in = 0; in < shape.in; ++in) {
      const float* w = weight + out * kTaps * shape.in + in;
      float rows[3][kSide];
      for (int y = 0; y < 3; ++y)
        std::ranges::copy(
            from_weights(w[3 * y * shape.in], w[(3 * y + 1) * shape.in], w[(3 * y + 2) * shape.in]), rows[y]);
      for (int x = 0; x < kSide; ++x) {
        const auto column = from_weights(rows[0][x], rows[1][x], rows[2][x]);
        for (int y = 0; y < kSide; ++y)
          put(to + ((out / group * kPlaces + kSide * y + x) * shape.in + in - in % pair) * group +
                  out % group * pair + in % pair,
              column[static_cast<size_t>(y)]);
      }
    }
}

// Some tiles in Winograd's domain: filled one by one, then multiplied all at once.
template <int lanes, class Number>
class Tiles {
 public:
  using V = Floats<lanes>;
  static constexpr int kMany = kTiles<lanes>, kGroup = kVectors * lanes;

  explicit Tiles(const ConvShape& shape)
      : shape_(shape), in_(kPlaces * kMany * shape.in), out_(kPlaces * kMany * kGroup) {}

  // `corner`: of the 4 x 4 pixels; `to`: where its window lies in the output
  LOCKSTEP_INLINE void add(const float* corner, int64_t to) {
    to_[count_] = to;
    transform(corner, in_.get() + count_ * lanes);
    ++count_;
  }

  bool full() const { return count_ == kMany; }

  LOCKSTEP_INLINE void flush(const Number* weight, const float* bias, float* output, uint8_t* winner) {
    for (int64_t channel = 0; channel < shape_.out; channel += kGroup) {
      for (int place = 0; place < kPlaces; ++place)
        multiply(place, weight + (channel / kGroup * kPlaces + place) * shape_.in * kGroup);
      for (int tile = 0; tile < count_; ++tile)
        unrolled<kVectors>([&](auto v) LOCKSTEP_INLINE {
          const int64_t to = to_[tile] + channel + v * lanes;
          auto sums = window(tile, v);
          for (auto& sum : sums) sum += load<V>(bias + channel + v * lanes);
          pool_sums<lanes>(sums, output + to, winner + to);
        });
    }
    count_ = 0;
  }

 private:
  static constexpr bool kOfPairs = std::is_same_v<Number, uint16_t>;
  static_assert(!kOfPairs || (kMany == kPairTiles && kGroup == kPairChannels && lanes == kPairBlock));

  LOCKSTEP_INLINE void transform(const float* corner, uint16_t* to) const {
    transform_pixels(corner, shape_.padded_row(), shape_.in, to);
  }

  LOCKSTEP_INLINE void transform(const float* corner, float* to) const {
    const int64_t row = shape_.padded_row(), step = shape_.in, blocks = step / lanes;
    for (int64_t block = 0; block < blocks; ++block) {
      std::array<V, 4> rows[kSide];
      unrolled<kSide>([&](auto y) LOCKSTEP_INLINE {
        const float* from = corner + y * row + block * lanes;
        rows[y] = from_pixels(load<V>(from), load<V>(from + step), load<V>(from + 2 * step),
                              load<V>(from + 3 * step));
      });
      unrolled<kSide>([&](auto x) LOCKSTEP_INLINE {
        const auto column = from_pixels(rows[0][x], rows[1][x], rows[2][x], rows[3][x]);
        unrolled<kSide>([&](auto y) LOCKSTEP_INLINE {
          store(to + ((kSide * y + x) * blocks + block) * kMany * lanes, column[y]);
        });
      });
    }
  }

  LOCKSTEP_INLINE void multiply(int place, const uint16_t* weight) {
    multiply_pairs(in_.get() + place * kMany * shape_.in, weight, shape_.in / lanes,
                   out_.get() + place * kMany * kGroup);
  }

  LOCKSTEP_INLINE void multiply(int place, const float* weight) {
    V sums[kMany][kVectors] = {};
    const int64_t blocks = shape_.in / lanes;
    for (int64_t block = 0; block < blocks; ++block) {
      const float* x = in_.get() + (place * blocks + block) * kMany * lanes;
      for (int i = 0; i < lanes; ++i, ++x, weight += kGroup) {
        V w[kVectors];
        unrolled<kVectors>([&](auto v) LOCKSTEP_INLINE { w[v] = load<V>(weight + v * lanes); });
        unrolled<kMany>([&](auto tile) LOCKSTEP_INLINE {
          unrolled<kVectors>([&](auto v) LOCKSTEP_INLINE { sums[tile][v] += w[v] * x[tile * lanes]; });
        });
      }
    }
    float* to = out_.get() + place * kMany * kGroup;
    unrolled<kMany * kVectors>(
        [&](auto i) LOCKSTEP_INLINE { store(to + i * lanes, sums[i / kVectors][i % kVectors]); });
  }

  LOCKSTEP_INLINE Four<lanes> window(int tile, int v) const {
    const float* from = out_.get() + tile * kGroup + v * lanes;
    std::array<V, 2> rows[kSide];
    unrolled<kSide>([&](auto y) LOCKSTEP_INLINE {
      const float* row = from + y * kSide * kMany * kGroup;
      rows[y] = to_pixels(load<V>(row), load<V>(row + kMany * kGroup), load<V>(row + 2 * kMany * kGroup),
                          load<V>(row + 3 * kMany * kGroup));
    });
    const auto left = to_pixels(rows[0][0], rows[1][0], rows[2][0], rows[3][0]);
    const auto right = to_pixels(rows[0][1], rows[1][1], rows[2][1], rows[3][1]);
    return {left[0], right[0], left[1], right[1]};
  }

  const ConvShape& shape_;
  Scratch<Number> in_;  // [places][blocks][tiles][lanes]
  Scratch<float> out_;
  std::array<int64_t, kMany> to_ = {};
  int count_ = 0;
};

template <int lanes, class Number>
LOCKSTEP_INLINE inline void forward_images(const ConvShape& shape, int64_t begin, int64_t end, const float* x,
                                           const Number* weights, const float* bias, float* output,
                                           uint8_t* winner) {
  const Scratch<float> padded(shape.padded_size());
  Tiles<lanes, Number> tiles(shape);
  for (int64_t image = begin; image < end; ++image) {
    pad(x + image * shape.image_size(), shape, padded.get());
    for (int64_t window = 0; window < shape.windows(); ++window) {
      tiles.add(padded.get() + shape.corner(window), (image * shape.windows() + window) * shape.out);
      if (tiles.full()) tiles.flush(weights, bias, output, winner);
    }
  }
  tiles.flush(weights, bias, output, winner);
}

// Pairs are multiplied at AVX-512 alone.
template <class Number, class Lanes>
constexpr bool kHas = std::is_same_v<Number, float> || Lanes::value == kPairBlock;

template <class Number>
void forward(const ConvShape& shape, const float* x, const float* weight, const float* bias, float* output,
             uint8_t* winner, SimdLevel level) {
  const Scratch<Number> weights(kPlaces * shape.in * shape.out);
  run_at(level, [&](auto lanes)
                    LOCKSTEP_INLINE { transform_weights(shape, weight, kVectors * lanes, weights.get()); });
  at::parallel_for(0, shape.images, 1, [&](int64_t begin, int64_t end) {
    run_at(level, [&](auto lanes) LOCKSTEP_INLINE {
      if constexpr (kHas<Number, decltype(lanes)>)
        forward_images<lanes>(shape, begin, end, x, weights.get(), bias, output, winner);
    });
  });
}

}  // namespace

void winograd_forward(const ConvShape& shape, const float* x, const float* weight, const float* bias,
                      float* output, uint8_t* winner, SimdLevel level, Products products) {
  const auto run = products == Products::bf16 ? forward<uint16_t> : forward<float>;
  run(shape, x, weight, bias, output, winner, level);
}

}  // namespace lockstep::kernels
