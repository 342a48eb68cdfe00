#pragma once
// Reads a pickle as data. There is no interpreter behind it: a table of names says what is understood,
// everything else is refused by name.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <string>

#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/tree.h"

namespace lockstep::checkpoint {

/// What a pickle says about a storage kept outside of it.
struct StorageRef {
  std::string key;
  at::ScalarType dtype;
  int64_t numel = 0;
};

/// The storage's bytes as a flat byte tensor (of the meta device where data is not wanted). Throws for
/// unknown keys.
using StorageLoader = std::function<at::Tensor(const StorageRef&)>;

/// One pickle from the cursor, protocols 2 to 5.
Tree unpickle(Cursor& input, const StorageLoader& load_storage);

// The names a checkpoint's pickle may mention, and what each of them means here. Nothing is ever imported or
// called.

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
