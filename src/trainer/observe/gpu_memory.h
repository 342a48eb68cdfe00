#pragma once
// How much of their GPUs' memory the ranks' tensors held at most.

#include <optional>

#include "lockstep/parallel/team.h"

namespace lockstep::train {

struct GpuMemory {
  double peak = 0, total = 0;  // bytes of the rank that held most, and what the smallest of the GPUs has
};

/// Since the start of the process; nothing on CPUs. Collective.
std::optional<GpuMemory> peak_gpu_memory(const Team& team);

}  // namespace lockstep::train
