#pragma once
// libtorch's type for a group of ranks.

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace lockstep {

/// libtorch's process group, with any backend.
using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

}  // namespace lockstep
