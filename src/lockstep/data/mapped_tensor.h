#pragma once
// Tensors that look into a file in memory.

#include <ATen/core/Tensor.h>

#include <memory>

#include "lockstep/base/files/file_map.h"

namespace lockstep::data {

/// A tensor at `place`, which keeps the map alive.
at::Tensor view_of(std::shared_ptr<base::FileMap> map, char* place, at::IntArrayRef shape,
                   at::ScalarType type);

}  // namespace lockstep::data
