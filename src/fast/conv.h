#pragma once
// A convolution of 3 x 3 with padding 1, bias, a pool of 2 x 2 and relu: what its loops share, and the loops.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "lockstep/kernels/pool_relu_loops.h"
#include "lockstep/kernels/vector.h"

namespace lockstep::kernels {

constexpr int kTaps = 9;

/// Images lie channels last.
struct ConvShape {
  int64_t images, in, out;  // in, out: channels
  int64_t height, width;    // of an image, and so of what the convolution makes of it

  int64_t high() const { return height / 2; }
  int64_t wide() const { return width / 2; }
  int64_t windows() const { return high() * wide(); }
  int64_t image_size() const { return height * width * in; }
  int64_t padded_row() const { return (width + 2) * in; }
  int64_t padded_size() const { return (height + 2) * padded_row(); }
  /// Where the 4 x 4 pixels that a window sees begin in a padded image.
  int64_t corner(int64_t window) const {
    return 2 * (window / wide()) * padded_row() + 2 * (window % wide()) * in;
  }
};

/// Into the middle of one whose border is zero, row by row.
template <class T, class Copy>
void pad(const float* image, const ConvShape& shape, T* padded, const Copy& copy) {
  const int64_t row = shape.width * shape.in;
  for (int64_t y = 0; y < shape.height; ++y)
    copy(image + y * row, row, padded + (y + 1) * shape.padded_row() + shape.in);
}

inline void pad(const float* image, const ConvShape& shape, float* padded) {
  pad(image, shape, padded, std::copy_n<const float*, int64_t, float*>);
}

/// And back.
inline void unpad(const float* padded, const ConvShape& shape, float* image) {
  const int64_t row = shape.width * shape.in;
  for (int64_t y = 0; y < shape.height; ++y)
    std::memcpy(image + y * row, padded + (y + 1) * shape.padded_row() + shape.in,
                static_cast<size_t>(row) * sizeof(float));
}

// A pool's window in registers: its four sums to one number, and one gradient back to its four.

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
    store_bytes<lanes>(winner, best <= zero ? at * 0 + kNoWinner : at);
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

// Images of one channel: first_conv.cpp.

/// Channels out are a multiple of this.
constexpr int64_t kFirstStep = 16;

/// weight [out][taps]; output and winner [images][windows][out].
void first_conv_forward(const ConvShape& shape, const float* x, const float* weight, const float* bias,
                        float* output, uint8_t* winner, SimdLevel level);

/// The weights' gradient [out][taps] and the bias's; the same at any number of threads.
void first_conv_backward(const ConvShape& shape, const float* x, const float* gradient, const uint8_t* winner,
                         float* weight, float* bias, SimdLevel level);

// Images of more channels: winograd.cpp and sparse_conv.cpp.

/// Channels in and out are multiples of these.
constexpr int64_t kInStep = 16, kOutStep = 32;

/// What is multiplied; sums are floats.
enum class Products { floats, bf16 };

/// weight [out][taps][in]; output and winner [images][windows][out].
void winograd_forward(const ConvShape& shape, const float* x, const float* weight, const float* bias,
                      float* output, uint8_t* winner, SimdLevel level, Products products = Products::floats);

/// What comes back to the pool's windows.
struct PooledGradient {
  const float* values;    // [images][out][windows]
  const uint8_t* winner;  // [images][windows][out]
};

/// The weights' gradient [out][taps][in] and the bias's; the same at any number of threads.
void sparse_weight_gradient(const ConvShape& shape, const float* x, const PooledGradient& gradient,
                            float* weight, float* bias, SimdLevel level,
                            Products products = Products::floats);

/// The input's gradient, from weight [out][taps][in].
void sparse_input_gradient(const ConvShape& shape, const PooledGradient& gradient, const float* weight,
                           float* x, SimdLevel level, Products products = Products::floats);

}  // namespace lockstep::kernels
