#include "lockstep/comm/mpi/reduction.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace lockstep::comm {
namespace {

using Op = c10d::ReduceOp;

// gloo's comparisons: the first of two equals stays, and NaN is never picked by a comparison it loses
struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Product {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a * b);
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct And {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// A block of the running result stays in the first-level cache, or in registers, over all sources.
constexpr size_t kBlock = 512;

// Two sources need no block. `out` is apart from them or exactly one of them: no element waits for another.
template <class T, class F>
void combine_two(const std::byte* const* sources, std::byte* out, size_t items) {
  const T* first = reinterpret_cast<const T*>(sources[0]);
  const T* second = reinterpret_cast<const T*>(sources[1]);
  T* result = reinterpret_cast<T*>(out);
#pragma GCC ivdep
  for (size_t i = 0; i < items; ++i) result[i] = F::apply(first[i], second[i]);
}

template <class T, class F>
void combine(const std::byte* const* sources, size_t count, std::byte* out, size_t items) {
  if (count == 2) return combine_two<T, F>(sources, out, items);
  T block[kBlock];
  for (size_t at = 0; at < items; at += kBlock) {
    const size_t n = std::min(kBlock, items - at);
    const T* first = reinterpret_cast<const T*>(sources[0]) + at;
    std::copy(first, first + n, block);
    for (size_t s = 1; s < count; ++s) {
      const T* next = reinterpret_cast<const T*>(sources[s]) + at;
      for (size_t i = 0; i < n; ++i) block[i] = F::apply(block[i], next[i]);
    }
    std::copy(block, block + n, reinterpret_cast<T*>(out) + at);
  }
}

template <class T>
void divide(std::byte* data, size_t items, int world) {
  T* values = reinterpret_cast<T*>(data);
  for (size_t i = 0; i < items; ++i) values[i] = static_cast<T>(values[i] / static_cast<T>(world));
}

template <class T>
Reduction numbers(Op::RedOpType op) {
  switch (op) {
    case Op::SUM:
      return {sizeof(T), combine<T, Sum>, nullptr};
    case Op::AVG:
      return {sizeof(T), combine<T, Sum>, divide<T>};
    case Op::PRODUCT:
      return {sizeof(T), combine<T, Product>, nullptr};
    case Op::MIN:
      return {sizeof(T), combine<T, Min>, nullptr};
    case Op::MAX:
      return {sizeof(T), combine<T, Max>, nullptr};
    default:
      return {};
  }
}

template <class T>
Reduction integers(Op::RedOpType op) {
  switch (op) {
    case Op::BAND:
      return {sizeof(T), combine<T, And>, nullptr};
    case Op::BOR:
      return {sizeof(T), combine<T, Or>, nullptr};
    case Op::BXOR:
      return {sizeof(T), combine<T, Xor>, nullptr};
    default:
      return numbers<T>(op);
  }
}

// A bool is a byte of 0 or 1, and stays one: a sum is "any", a product "all".
Reduction bools(Op::RedOpType op) {
  switch (op) {
    case Op::SUM:
    case Op::MAX:
    case Op::BOR:
      return {1, combine<uint8_t, Or>, nullptr};
    case Op::PRODUCT:
    case Op::MIN:
    case Op::BAND:
      return {1, combine<uint8_t, And>, nullptr};
    case Op::BXOR:
      return {1, combine<uint8_t, Xor>, nullptr};
    default:
      return {};
  }
}

Reduction look_up(c10::ScalarType type, Op::RedOpType op) {
  switch (type) {
    case c10::ScalarType::Float:
      return numbers<float>(op);
    case c10::ScalarType::Double:
      return numbers<double>(op);
    case c10::ScalarType::Half:
      return numbers<c10::Half>(op);
    case c10::ScalarType::BFloat16:
      return numbers<c10::BFloat16>(op);
    case c10::ScalarType::Byte:
      return integers<uint8_t>(op);
    case c10::ScalarType::Char:
      return integers<int8_t>(op);
    case c10::ScalarType::Short:
      return integers<int16_t>(op);
    case c10::ScalarType::Int:
      return integers<int32_t>(op);
    case c10::ScalarType::Long:
      return integers<int64_t>(op);
    case c10::ScalarType::Bool:
      return bools(op);
    default:
      return {};
  }
}

}  // namespace

Reduction find_reduction(c10::ScalarType type, Op::RedOpType op) {
  const Reduction reduction = look_up(type, op);
  TORCH_CHECK(reduction.combine, "the mpi backend cannot reduce ", c10::toString(type), " with operation ",
              static_cast<int>(op), " (0 sum, 1 average, 2 product, 3 min, 4 max, 5 to 7 bits of integers)");
  return reduction;
}

}  // namespace lockstep::comm
