#pragma once
// Batch normalisation over the global batch: statistics of all ranks' samples, forward and backward.

#include <ATen/core/Tensor.h>

#include "lockstep/comm/group.h"

namespace lockstep::parallel {

/// Batch norm of `input` over the samples of every rank of the group; collective. Ranks may hold different
/// numbers of samples, also none. The running statistics, where defined, move by `momentum`.
at::Tensor sync_batch_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var, double momentum,
                           double eps, const ProcessGroup& group);

/// The same on a GPU, with the arithmetic of torch.nn.SyncBatchNorm.
at::Tensor sync_batch_norm_by_kernels(const at::Tensor& input, const at::Tensor& weight,
                                      const at::Tensor& bias, const at::Tensor& running_mean,
                                      const at::Tensor& running_var, double momentum, double eps,
                                      const ProcessGroup& group);

}  // namespace lockstep::parallel
