#include "checkpoint/rng.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <mutex>

#include "base/error.h"

namespace lockstep {

at::Tensor rng_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_rng_state(const at::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  try {
    generator.set_state(state.to(at::kCPU).contiguous());
  } catch (const c10::Error&) {
    throw InputError("the checkpoint's random generator state is no state of this libtorch's CPU generator");
  }
}

}  // namespace lockstep
