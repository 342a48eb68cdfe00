#pragma once
// A group of ranks, as libtorch knows it.

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace lockstep {

/// What connects the ranks: libtorch's own group, whatever backend carries it.
using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

}  // namespace lockstep
