#pragma once
// The names a checkpoint's pickle may mention, and what each of them means here. Nothing is ever imported or
// called.

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

namespace lockstep::checkpoint {

enum class GlobalKind {
  rebuild_tensor,     // (storage, offset, size, stride, ...)
  rebuild_tensor_v3,  // the same, with the dtype as seventh argument
  rebuild_parameter,  // (tensor, ...): the tensor
  rebuild_subclass,   // (function, type, arguments, state): the function's result
  dict,               // an empty dictionary, or one made from pairs
  list,               // the first argument's elements, or none
  first_argument,     // torch.Size, torch.device
  bytes_of_text,      // _codecs.encode(text, "latin1"), protocol 2's way to write bytes
  numpy_scalar,
  numpy_dtype,
  value,    // stands for itself: a dtype or a class
  storage,  // a storage's class
  object,   // harmless and not understood: read as the dictionary of its attributes
  refused,
};

GlobalKind global_kind(const std::string& name);

/// "torch.FloatStorage" or "torch.float32".
std::optional<at::ScalarType> dtype_of_global(const std::string& name);

/// Python's name of a dtype: "float32".
std::string dtype_name(at::ScalarType dtype);

}  // namespace lockstep::checkpoint
