#include "trainer/observe/gpu_memory.h"

#include <vector>

#include "lockstep/comm/cuda_plugin.h"

namespace lockstep::train {

std::optional<GpuMemory> peak_gpu_memory(const Team& team) {
  if (!team.device().is_cuda()) return {};
  const int device = team.device().index();
  std::vector<double> most{static_cast<double>(comm::cuda().peak_bytes(device)),
                           -static_cast<double>(comm::cuda().total_bytes(device))};
  team.max(most);
  return GpuMemory{most[0], -most[1]};
}

}  // namespace lockstep::train
