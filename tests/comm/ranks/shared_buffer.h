#pragma once
// A tensor that an all-reduce sums where it lies.

#include <ATen/ATen.h>

#include "lockstep/comm/shared_backend.h"

namespace lockstep::test {

/// Of zeros. Collective, with the same arguments on all ranks.
inline at::Tensor shared_buffer(const ProcessGroup& group, const at::TensorOptions& options,
                                at::IntArrayRef sizes) {
  at::Tensor buffer = at::zeros(sizes, options);
  comm::share(group, {buffer});
  return buffer;
}

}  // namespace lockstep::test
