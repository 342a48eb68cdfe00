#include "call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <mutex>

#include "alias.h"
#include "in_float.h"
#include "tensors.h"

namespace lab {
namespace {

std::mutex default_generator;

/// The generator's state, and what seeds it for one call.
at::Tensor seed_default(at::Generator& generator, uint64_t seed) {
  const std::lock_guard lock(generator.mutex());
  at::Tensor before = generator.get_state();
  generator.set_current_seed(seed);
  return before;
}

/// For the few operators that draw and take no generator: they use the CPU's default one.
void run_with_default(const c10::OperatorHandle& op, Stack& stack, uint64_t seed) {
  const std::lock_guard alone(default_generator);
  auto generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = seed_default(generator, seed);
  run_on_cpu_or_in_float(op, stack);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(before);
}

}  // namespace

Stack Call::run(Stack stack) const {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  if (draw && generator_at < 0) {
    run_with_default(op, stack, draw->seed());
    return stack;
  }
  if (draw) {
    c10::IValue generator = draw->generator();
    stack[static_cast<size_t>(generator_at)].swap(generator);
  }
  run_on_cpu_or_in_float(op, stack);
  return stack;
}

void Call::run_into_place() const {
  size_t at = 0;
  for (const auto& value : run(arguments)) {
    each_tensor(value, [&](const at::Tensor& made) {
      const at::Tensor& to = destinations.at(at++);
      if (to.defined()) copy_into(to, made);
    });
  }
}

}  // namespace lab
