#include "nccl/numbers.h"

namespace lab::nccl {

std::size_t size_of(ncclDataType_t type) {
  std::size_t size = 0;
  with_type(type, [&](auto number) { size = sizeof number; });
  return size;
}

const char* name_of(ncclDataType_t type) {
  static constexpr const char* kNames[] = {"int8",    "uint8",   "int32",   "uint32",   "int64", "uint64",
                                           "float16", "float32", "float64", "bfloat16", "e4m3",  "e5m2"};
  return type >= 0 && type < ncclNumTypes ? kNames[type] : "unknown type";
}

}  // namespace lab::nccl
