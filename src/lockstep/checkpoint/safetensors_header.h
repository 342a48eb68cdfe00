#pragma once
// The header of a safetensors file, read in one pass that holds nothing but the tensors' claims.

#include <string>
#include <vector>

#include "lockstep/checkpoint/cursor.h"
#include "lockstep/checkpoint/rebuild.h"

namespace lockstep::checkpoint {

struct SafetensorsEntry {
  std::string name;
  TensorClaim claim = {};  // its strides are a contiguous tensor's
  uint64_t begin = 0, end = 0;
};

inline constexpr uint64_t kLongestHeader = 100'000'000;  // as the reference implementation has it

/// The entries in the header's order, from the file's beginning; the cursor is left where the data begins.
/// InputError for what is no such header. Offsets and sizes are numbers below 2^48, and no more is checked.
std::vector<SafetensorsEntry> read_safetensors_header(Cursor& input);

/// "F32"; throws Error where safetensors has no name for the dtype.
std::string safetensors_dtype(at::ScalarType dtype, const std::string& tensor);

}  // namespace lockstep::checkpoint
