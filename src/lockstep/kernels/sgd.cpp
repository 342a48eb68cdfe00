#include "lockstep/kernels/sgd.h"

#include <ATen/Parallel.h>

namespace lockstep::kernels {
namespace {

// ATen divides more elements than this among its threads.
constexpr int64_t kOneThreads = 32768;

// a + b * c as ATen's add with alpha has it: with one rounding from AVX2 on. This file is compiled without
// contraction: the compiler fuses nothing by itself.
template <int lanes>
LOCKSTEP_INLINE inline float plus(Lanes<lanes>, float a, float b, float c) {
  if constexpr (lanes > 4) return __builtin_fmaf(b, c, a);
  return a + b * c;
}

// The buffer is what momentum leaves; a loop for each kind, so that none has a branch in it.
template <bool decays, bool has_buffer, bool nesterov, class Registers>
LOCKSTEP_INLINE inline void steps(Registers registers, const SgdFactors& sgd, float* parameters,
                                  const float* gradients, float* buffer, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    float way = gradients[i];
    if constexpr (decays) way = plus(registers, way, parameters[i], sgd.weight_decay);
    if constexpr (has_buffer) {
      const float kept = buffer[i] * sgd.momentum;
      buffer[i] = plus(registers, kept, way, sgd.dampening_left);
      way = nesterov ? plus(registers, way, buffer[i], sgd.momentum) : buffer[i];
    }
    parameters[i] = plus(registers, parameters[i], way, -sgd.lr);
  }
}

}  // namespace

bool pays_sgd([[maybe_unused]] int64_t count) {
#if defined(__x86_64__)
  return count <= kOneThreads || at::get_num_threads() == 1;
#else
  return false;
#endif
}

void take_sgd_step(const SgdFactors& sgd, float* parameters, const float* gradients, float* buffer,
                   int64_t count, SimdLevel level) {
  const bool decays = sgd.weight_decay != 0;
  run_at(level, [&](auto registers) LOCKSTEP_INLINE {
    if (!buffer) {
      decays ? steps<true, false, false>(registers, sgd, parameters, gradients, buffer, count)
             : steps<false, false, false>(registers, sgd, parameters, gradients, buffer, count);
    } else if (sgd.nesterov) {
      decays ? steps<true, true, true>(registers, sgd, parameters, gradients, buffer, count)
             : steps<false, true, true>(registers, sgd, parameters, gradients, buffer, count);
    } else {
      decays ? steps<true, true, false>(registers, sgd, parameters, gradients, buffer, count)
             : steps<false, true, false>(registers, sgd, parameters, gradients, buffer, count);
    }
  });
}

}  // namespace lockstep::kernels
