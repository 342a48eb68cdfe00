#pragma once
// Batch normalisation over the global batch by libtorch's own kernels, which are CUDA's: nothing waits for
// the device.

#include <ATen/core/Tensor.h>

#include "lockstep/comm/group.h"

namespace lockstep::parallel {

/// As sync_batch_norm, with the arithmetic of torch.nn.SyncBatchNorm.
at::Tensor sync_batch_norm_by_kernels(const at::Tensor& input, const at::Tensor& weight,
                                      const at::Tensor& bias, const at::Tensor& running_mean,
                                      const at::Tensor& running_var, double momentum, double eps,
                                      const ProcessGroup& group);

}  // namespace lockstep::parallel
