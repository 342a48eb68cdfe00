#pragma once
// A tensor from a storage and what a pickle claims about its shape, every claim checked.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/checkpoint/cursor.h"

namespace lockstep::checkpoint {

struct TensorClaim {
  at::ScalarType dtype;
  int64_t offset = 0;  // in elements
  std::vector<int64_t> sizes = {}, strides = {};
};

inline constexpr size_t kMostDimensions = 64;  ///< of a tensor that is rebuilt

/// A view of the bytes. InputError (through `input`, which knows the file) where it would reach beyond them.
at::Tensor rebuild_tensor(const at::Tensor& bytes, const TensorClaim& claim, const Cursor& input);

}  // namespace lockstep::checkpoint
