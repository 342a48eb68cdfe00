#pragma once
// gcc's and clang's vector types: the compiler uses the processor's vector instructions.

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

template <class T, int lanes>
struct VectorOf {
  using Type __attribute__((vector_size(lanes * sizeof(T)))) = T;
};

template <class T, int lanes>
using Vector = typename VectorOf<T, lanes>::Type;

template <int lanes>
using Floats = Vector<float, lanes>;
template <int lanes>
using Ints = Vector<int32_t, lanes>;

template <class V>
LOCKSTEP_INLINE inline V load(const void* from) {
  V values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

template <class V>
LOCKSTEP_INLINE inline void store(void* to, V values) {
  std::memcpy(to, &values, sizeof values);
}

template <int lanes>
LOCKSTEP_INLINE inline Vector<float, lanes> load_floats(const float* from) {
  return load<Vector<float, lanes>>(from);
}

/// bfloat16
template <int lanes>
LOCKSTEP_INLINE inline Vector<float, lanes> load_floats(const uint16_t* from) {
  const auto wide = __builtin_convertvector((load<Vector<uint16_t, lanes>>(from)), Vector<uint32_t, lanes>)
                    << 16;
  return load<Vector<float, lanes>>(&wide);
}

template <int lanes>
LOCKSTEP_INLINE inline void store_floats(float* to, Vector<float, lanes> values) {
  store(to, values);
}

/// For numbers that were bfloat16 before.
template <int lanes>
LOCKSTEP_INLINE inline void store_floats(uint16_t* to, Vector<float, lanes> values) {
  const auto wide = load<Vector<uint32_t, lanes>>(&values) >> 16;
  store(to, __builtin_convertvector(wide, Vector<uint16_t, lanes>));
}

/// Bytes, converted to and from the integers of masks.
template <int lanes>
LOCKSTEP_INLINE inline Vector<int32_t, lanes> load_bytes(const uint8_t* from) {
  return __builtin_convertvector((load<Vector<uint8_t, lanes>>(from)), Vector<int32_t, lanes>);
}

template <int lanes>
LOCKSTEP_INLINE inline void store_bytes(uint8_t* to, Vector<int32_t, lanes> values) {
  store(to, __builtin_convertvector(values, Vector<uint8_t, lanes>));
}

template <class V>
LOCKSTEP_INLINE inline auto is_no_number(V x) {
  return x != x;  // NOLINT(misc-redundant-expression)
}

namespace detail {

template <int first, class V, int... i>
LOCKSTEP_INLINE inline auto part(V whole, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(whole, whole, (first + i)...);
}

template <class V, int... i>
LOCKSTEP_INLINE inline auto joined(V one, V other, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(one, other, i...);
}

template <class Work, int... i>
LOCKSTEP_INLINE inline void unrolled(const Work& work, std::integer_sequence<int, i...>) {
  (work(std::integral_constant<int, i>()), ...);
}

template <int first, class V, int... i>
LOCKSTEP_INLINE inline V every_second(V one, V other, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(one, other, (first + 2 * i)...);
}

template <int first, class V, int... i>
LOCKSTEP_INLINE inline V zipped(V one, V other, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(one, other, ((first + i) / 2 + (first + i) % 2 * int{sizeof...(i)})...);
}

}  // namespace detail

template <class V>
constexpr int kLanesOf = sizeof(V) / sizeof(float);

/// The first half of a vector's numbers, and the second.
template <class V>
LOCKSTEP_INLINE inline auto low(V whole) {
  return detail::part<0>(whole, std::make_integer_sequence<int, kLanesOf<V> / 2>());
}
template <class V>
LOCKSTEP_INLINE inline auto high(V whole) {
  return detail::part<kLanesOf<V> / 2>(whole, std::make_integer_sequence<int, kLanesOf<V> / 2>());
}
template <class V>
LOCKSTEP_INLINE inline auto joined(V one, V other) {
  return detail::joined(one, other, std::make_integer_sequence<int, 2 * kLanesOf<V>>());
}

/// work(i) for i from 0, unrolled: arrays that it indexes by i can stay in registers.
template <int count, class Work>
LOCKSTEP_INLINE inline void unrolled(const Work& work) {
  detail::unrolled(work, std::make_integer_sequence<int, count>());
}

/// Of consecutive numbers, those at even (first 0) or odd (1) indices.
template <int lanes, int first, class V>
LOCKSTEP_INLINE inline V every_second(V one, V other) {
  return detail::every_second<first>(one, other, std::make_integer_sequence<int, lanes>());
}

/// The first half (0) or the second (1) of: one's first, other's first, one's second, ...
template <int lanes, int half, class V>
LOCKSTEP_INLINE inline V zipped(V one, V other) {
  return detail::zipped<half * lanes>(one, other, std::make_integer_sequence<int, lanes>());
}

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

/// [rows][columns] to [columns][rows], by squares; `row`: the distance from one row to the next.
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

/// Zeroed memory for a loop, aligned to a cache line.
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

}  // namespace lockstep::kernels
