#include "lockstep/comm/shm/reduction.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <functional>

#include "lockstep/comm/shm/segment.h"
#include "lockstep/kernels/level.h"

namespace lockstep::comm {
namespace {

using Op = c10d::ReduceOp;

template <class T, class Operation>
T of(T a, T b) {
  return static_cast<T>(Operation()(a, b));
}
// gloo's comparisons: the first of two equals stays, and NaN is never picked by a comparison it loses
template <class T>
T least(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T greatest(T a, T b) {
  return a < b ? b : a;
}
template <class T, T apply(T, T)>
T swapped(T a, T b) {
  return apply(b, a);
}

struct Places {
  const std::byte* const* sources;
  size_t count;
  std::byte* const* outs;
  size_t out_count;
};

// Two sources need no block. `outs` are apart from them or exactly one of them: no element waits for another.
template <class T, T apply(T, T), bool second_out>
LOCKSTEP_INLINE inline void combine_two(const Places& places, size_t at, size_t items) {
  const T* first = reinterpret_cast<const T*>(places.sources[0]) + at;
  const T* second = reinterpret_cast<const T*>(places.sources[1]) + at;
  T* result = reinterpret_cast<T*>(places.outs[0]) + at;
  T* other = reinterpret_cast<T*>(places.outs[second_out ? 1 : 0]) + at;
#pragma GCC ivdep
  for (size_t i = 0; i < items; ++i) {
    const T value = apply(first[i], second[i]);
    result[i] = value;
    if constexpr (second_out) other[i] = value;
  }
}

// The running result stays in the first-level cache, or in registers, over all sources.
template <class T, T apply(T, T)>
LOCKSTEP_INLINE inline void combine_many(const Places& places, size_t at, size_t items) {
  T block[kPiece / sizeof(T)];
  const T* first = reinterpret_cast<const T*>(places.sources[0]) + at;
  std::copy(first, first + items, block);
  for (size_t s = 1; s < places.count; ++s) {
    const T* next = reinterpret_cast<const T*>(places.sources[s]) + at;
#pragma GCC ivdep
    for (size_t i = 0; i < items; ++i) block[i] = apply(block[i], next[i]);
  }
  for (size_t o = 0; o < places.out_count; ++o)
    std::copy(block, block + items, reinterpret_cast<T*>(places.outs[o]) + at);
}

// The same bits at each level: elements do not depend on each other.
template <class T, T apply(T, T)>
void combine_into(const std::byte* const* sources, size_t count, std::byte* const* outs, size_t out_count,
                  size_t items) {
  const Places places{sources, count, outs, out_count};
  kernels::run_at(kernels::level(), [&](auto) LOCKSTEP_INLINE {
    constexpr size_t kBlock = kPiece / sizeof(T);
    for (size_t at = 0; at < items; at += kBlock) {
      const size_t n = std::min(kBlock, items - at), next = at + n;
      for (size_t o = 0; o < out_count; ++o)
        fetch_to_write(outs[o] + next * sizeof(T), std::min(kBlock, items - next) * sizeof(T));
      if (count == 2 && out_count == 1) {
        combine_two<T, apply, false>(places, at, n);
      } else if (count == 2 && out_count == 2) {
        combine_two<T, apply, true>(places, at, n);
      } else {
        combine_many<T, apply>(places, at, n);
      }
    }
  });
}

template <class T, T apply(T, T)>
void combine(const std::byte* const* sources, size_t count, std::byte* out, size_t items) {
  combine_into<T, apply>(sources, count, &out, 1, items);
}

template <class T, T apply(T, T)>
Reduction by(void (*divide)(std::byte* data, size_t items, int world) = nullptr) {
  return {sizeof(T), combine<T, apply>, divide, combine_into<T, apply>};
}

template <class T>
void divide(std::byte* data, size_t items, int world) {
  T* values = reinterpret_cast<T*>(data);
  for (size_t i = 0; i < items; ++i) values[i] = static_cast<T>(values[i] / static_cast<T>(world));
}

template <class T>
Reduction numbers(Op::RedOpType op, bool on_the_left) {
  switch (op) {
    case Op::SUM:
      return by<T, of<T, std::plus<>>>();
    case Op::AVG:
      return by<T, of<T, std::plus<>>>(divide<T>);
    case Op::PRODUCT:
      return by<T, of<T, std::multiplies<>>>();
    case Op::MIN:
      return on_the_left ? by<T, swapped<T, least<T>>>() : by<T, least<T>>();
    case Op::MAX:
      return on_the_left ? by<T, swapped<T, greatest<T>>>() : by<T, greatest<T>>();
    default:
      return {};
  }
}

template <class T>
Reduction integers(Op::RedOpType op) {
  switch (op) {
    case Op::BAND:
      return by<T, of<T, std::bit_and<>>>();
    case Op::BOR:
      return by<T, of<T, std::bit_or<>>>();
    case Op::BXOR:
      return by<T, of<T, std::bit_xor<>>>();
    default:
      return numbers<T>(op, false);  // equal integers have equal bits
  }
}

// A bool is a byte of 0 or 1, and stays one: a sum is "any", a product "all".
Reduction bools(Op::RedOpType op) {
  if (op == Op::SUM || op == Op::MAX) op = Op::BOR;
  if (op == Op::PRODUCT || op == Op::MIN) op = Op::BAND;
  return op == Op::AVG ? Reduction{} : integers<uint8_t>(op);
}

Reduction reduction_for(c10::ScalarType type, Op::RedOpType op, bool on_the_left) {
  switch (type) {
    case c10::ScalarType::Float:
      return numbers<float>(op, on_the_left);
    case c10::ScalarType::Double:
      return numbers<double>(op, on_the_left);
    case c10::ScalarType::Half:
      return numbers<c10::Half>(op, on_the_left);
    case c10::ScalarType::BFloat16:
      return numbers<c10::BFloat16>(op, on_the_left);
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

Reduction find_reduction(c10::ScalarType type, Op::RedOpType op, bool on_the_left) {
  const Reduction reduction = reduction_for(type, op, on_the_left);
  TORCH_CHECK(reduction.combine, "cannot reduce ", c10::toString(type), " with operation ",
              static_cast<int>(op), " (0 sum, 1 average, 2 product, 3 min, 4 max, 5 to 7 bits of integers)");
  return reduction;
}

}  // namespace lockstep::comm
