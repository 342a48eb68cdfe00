#pragma once
// NCCL's types of numbers, and how each is computed with: the small floating ones in float, integers wrap.
#include <nccl.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lab::nccl {

std::size_t size_of(ncclDataType_t type);
const char* name_of(ncclDataType_t type);

template <class T>
struct Number {
  using Wide = T;
  static Wide wide(T value) { return value; }
  static T narrow(Wide value) { return value; }
};
template <>
struct Number<__half> {
  using Wide = float;
  static float wide(__half value) { return __half2float(value); }
  static __half narrow(float value) { return __float2half_rn(value); }
};
template <>
struct Number<__nv_bfloat16> {
  using Wide = float;
  static float wide(__nv_bfloat16 value) { return __bfloat162float(value); }
  static __nv_bfloat16 narrow(float value) { return __float2bfloat16_rn(value); }
};
template <>
struct Number<__nv_fp8_e4m3> {
  using Wide = float;
  static float wide(__nv_fp8_e4m3 value) { return static_cast<float>(value); }
  static __nv_fp8_e4m3 narrow(float value) { return __nv_fp8_e4m3(value); }
};
template <>
struct Number<__nv_fp8_e5m2> {
  using Wide = float;
  static float wide(__nv_fp8_e5m2 value) { return static_cast<float>(value); }
  static __nv_fp8_e5m2 narrow(float value) { return __nv_fp8_e5m2(value); }
};
template <class T>
using Wide = typename Number<T>::Wide;

// unsigned at least as wide as int: its overflow is defined, and narrowing keeps the low bits
template <class T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

template <class W>
W plus(W a, W b) {
  if constexpr (std::is_integral_v<W>)
    return static_cast<W>(static_cast<Wrapping<W>>(a) + static_cast<Wrapping<W>>(b));
  else
    return a + b;
}
template <class W>
W times(W a, W b) {
  if constexpr (std::is_integral_v<W>)
    return static_cast<W>(static_cast<Wrapping<W>>(a) * static_cast<Wrapping<W>>(b));
  else
    return a * b;
}
// as a GPU's: NaN gives way to a number
template <class W>
W larger(W a, W b) {
  if constexpr (std::is_integral_v<W>)
    return a < b ? b : a;
  else
    return std::fmax(a, b);
}
template <class W>
W smaller(W a, W b) {
  if constexpr (std::is_integral_v<W>)
    return b < a ? b : a;
  else
    return std::fmin(a, b);
}

/// use(T{}) with the C++ type of NCCL's.
template <class Use>
void with_type(ncclDataType_t type, const Use& use) {
  switch (type) {
    case ncclInt8:
      return use(std::int8_t{});
    case ncclUint8:
      return use(std::uint8_t{});
    case ncclInt32:
      return use(std::int32_t{});
    case ncclUint32:
      return use(std::uint32_t{});
    case ncclInt64:
      return use(std::int64_t{});
    case ncclUint64:
      return use(std::uint64_t{});
    case ncclFloat16:
      return use(__half{});
    case ncclFloat32:
      return use(float{});
    case ncclFloat64:
      return use(double{});
    case ncclBfloat16:
      return use(__nv_bfloat16{});
    case ncclFloat8e4m3:
      return use(__nv_fp8_e4m3{});
    case ncclFloat8e5m2:
      return use(__nv_fp8_e5m2{});
    default:
      return;
  }
}

}  // namespace lab::nccl
