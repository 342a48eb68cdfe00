#pragma once
// Reads a pickle as data. There is no interpreter behind it: a table of names says what is understood,
// everything else is refused by name.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
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

/// The storage's bytes as a flat byte tensor. Throws for unknown keys.
using StorageLoader = std::function<at::Tensor(const StorageRef&)>;

/// One pickle from the cursor, protocols 2 to 5.
Tree unpickle(Cursor& input, const StorageLoader& load_storage);

}  // namespace lockstep::checkpoint
