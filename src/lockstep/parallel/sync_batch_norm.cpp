#include "lockstep/parallel/sync_batch_norm.h"

#include "lockstep/parallel/sync_batch_norm_function.h"

#include <torch/types.h>

#include "lockstep/parallel/sync_batch_norm_function.h"

namespace lockstep {

SyncBatchNorm::SyncBatchNorm(int64_t features, ProcessGroup group, SyncBatchNormOptions options)
    : group_(std::move(group)), options_(options) {
  if (options_.affine) {
    weight = register_parameter("weight", at::ones({features}));
    bias = register_parameter("bias", at::zeros({features}));
  }
  if (options_.track_running_stats) {
    running_mean = register_buffer("running_mean", at::zeros({features}));
    running_var = register_buffer("running_var", at::ones({features}));
    num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  }
}

at::Tensor SyncBatchNorm::forward(const at::Tensor& input) {
  if (!is_training() && running_mean.defined())
    return at::batch_norm(input, weight, bias, running_mean, running_var, false, 0, options_.eps, false);
  double momentum = options_.momentum.value_or(0);
  if (is_training() && num_batches_tracked.defined()) {
    num_batches_tracked.add_(1);
    if (!options_.momentum) momentum = 1.0 / num_batches_tracked.item<double>();
  }
  return parallel::sync_batch_norm(input, weight, bias, is_training() ? running_mean : at::Tensor(),
                                   is_training() ? running_var : at::Tensor(), momentum, options_.eps,
                                   group_);
}

}  // namespace lockstep
