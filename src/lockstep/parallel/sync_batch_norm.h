#pragma once
// Batch normalisation over the global batch as a layer, and in place of a module's own layers.

#include <torch/nn/module.h>

#include <concepts>
#include <memory>
#include <optional>

#include "lockstep/comm/group.h"

namespace lockstep {

/// From now on every BatchNorm1d, 2d and 3d in `module` (also inside a TorchScript module) normalises over
/// the group while it trains, in its place: names, parameters and the user's class stay as they are.
/// Evaluation is untouched. The group is not kept alive. With a TorchScript module, scripts that this thread
/// runs are no longer optimised: libtorch's optimiser would put its own batch normalisation back.
///
/// How: a C++ module's forward is not virtual, so a layer cannot be exchanged behind a typed member. Instead
/// aten::batch_norm is given a kernel of ours that knows the converted layers by their parameters or buffers
/// and leaves all others to libtorch. A layer with neither (affine and track_running_stats both off) is
/// refused.
void convert_sync_batchnorm(torch::nn::Module& module, const ProcessGroup& group);

/// The same for a holder or a pointer.
template <class M>
requires(!std::derived_from<M, torch::nn::Module>) M
    convert_sync_batchnorm(M module, const ProcessGroup& group) {
  convert_sync_batchnorm(*module, group);
  return module;
}

/// torch.nn.SyncBatchNorm's arguments.
struct SyncBatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // nullopt: cumulative average
  bool affine = true;
  bool track_running_stats = true;
};

/// The layer itself, for a new module; names and numbers as in torch.nn.SyncBatchNorm. Unlike a converted
/// BatchNorm1d it also takes a rank's batch of one sample.
class SyncBatchNorm : public torch::nn::Module {
 public:
  SyncBatchNorm(int64_t features, ProcessGroup group, SyncBatchNormOptions options = {});
  /// [n, features, ...], normalised over the whole group's batch while training.
  at::Tensor forward(const at::Tensor& input);

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  ProcessGroup group_;
  SyncBatchNormOptions options_;
};

}  // namespace lockstep

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
