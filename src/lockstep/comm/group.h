#pragma once
// A group of ranks, as libtorch knows it.

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace lockstep {

/// libtorch's process group, with any backend.
using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

}  // namespace lockstep
