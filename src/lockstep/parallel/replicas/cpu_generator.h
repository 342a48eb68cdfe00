#pragma once
// The CPU's one generator of random numbers: kept for a while, or asked whether anybody drew from it.

#include <ATen/core/Tensor.h>

namespace lockstep::parallel {

at::Tensor cpu_generator_state();
void set_cpu_generator_state(const at::Tensor& state);

/// Whatever is drawn while it lives leaves no trace.
class KeptGenerator {
 public:
  KeptGenerator() : state_(cpu_generator_state()) {}
  ~KeptGenerator() { set_cpu_generator_state(state_); }
  KeptGenerator(const KeptGenerator&) = delete;
  KeptGenerator& operator=(const KeptGenerator&) = delete;

 private:
  at::Tensor state_;
};

/// Has anybody drawn since it was made?
class Draws {
 public:
  Draws() : before_(cpu_generator_state()) {}
  bool any() const { return !before_.equal(cpu_generator_state()); }

 private:
  at::Tensor before_;
};

}  // namespace lockstep::parallel
