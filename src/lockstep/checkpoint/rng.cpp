#include "lockstep/checkpoint/rng.h"

#include <ATen/Context.h>
#include <torch/types.h>

#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep {

at::Tensor rng_state(at::Device device) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_rng_state(const at::Tensor& state, at::Device device) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  try {
    generator.set_state(state.to(at::kCPU).contiguous());
  } catch (const c10::Error&) {
    throw InputError(
        format("the checkpoint's random state does not fit this libtorch's generator for {}", device.str()),
        "lockstep.rng", "resume with the libtorch that wrote the checkpoint, or use an earlier one");
  }
}

}  // namespace lockstep
