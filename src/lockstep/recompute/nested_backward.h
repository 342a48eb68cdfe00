#pragma once
// A backward that a function runs of its own, while autograd's threads compute.

#include <c10/core/Device.h>
#include <torch/csrc/autograd/edge.h>

#include <optional>
#include <vector>

namespace lockstep::recompute {

/// A GPU whose thread a backward from these roots would wait for, other than the one whose thread this is.
std::optional<c10::Device> other_gpu_of(const std::vector<torch::autograd::Edge>& roots);

}  // namespace lockstep::recompute
