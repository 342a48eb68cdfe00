#pragma once
// What the loops of a convolution of 3 x 3 with padding 1 and a pool of 2 x 2 behind it agree on.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

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

/// Memory that a loop works in, on a cache line.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : values_(static_cast<T*>(::operator new(static_cast<size_t>(count) * sizeof(T), kLine))) {
    std::memset(static_cast<void*>(values_.get()), 0, static_cast<size_t>(count) * sizeof(T));
  }
  T* get() const { return values_.get(); }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(T* values) const { ::operator delete(values, kLine); }
  };
  std::unique_ptr<T, Free> values_;
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

// A square matrix, transposed.

// Zipping the first half of the rows with the second, as often as halves can be cut, transposes a square.
template <class T, int side>
LOCKSTEP_INLINE inline void transpose_square(const T* from, int64_t row, T* to, int64_t to_row) {
  if constexpr (side == 1) {
    *to = *from;
  } else {
    using V = Vector<T, side>;
    V rows[side];
    unrolled<side>([&](auto i) LOCKSTEP_INLINE { rows[i] = load<V>(from + i * row); });
    for (int cut = 1; cut < side; cut *= 2) {
      V zips[side];
      unrolled<side / 2>([&](auto i) LOCKSTEP_INLINE {
        zips[2 * i] = zipped<side, 0>(rows[i], rows[i + side / 2]);
        zips[2 * i + 1] = zipped<side, 1>(rows[i], rows[i + side / 2]);
      });
      unrolled<side>([&](auto i) LOCKSTEP_INLINE { rows[i] = zips[i]; });
    }
    unrolled<side>([&](auto i) LOCKSTEP_INLINE { store(to + i * to_row, rows[i]); });
  }
}

/// [rows][columns] to [columns][rows], by squares; `row`: how far one row is from the next.
template <class T, int side>
LOCKSTEP_INLINE inline void turn(Lanes<side> square, const T* from, int64_t row, int64_t rows,
                                 int64_t columns, T* to) {
  if constexpr (side > 1) {
    if (rows < side || columns < side) return turn(Lanes<side / 2>(), from, row, rows, columns, to);
  }
  for_chunks(square, rows, [&](auto, int64_t y) LOCKSTEP_INLINE {
    for_chunks(square, columns, [&](auto, int64_t x) LOCKSTEP_INLINE {
      transpose_square<T, side>(from + y * row + x, row, to + x * rows + y, rows);
    });
  });
}

}  // namespace lockstep::kernels
