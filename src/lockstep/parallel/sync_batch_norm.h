#pragma once
// Batch normalization over the global batch: as a layer, or by converting a module's own layers.

#include <torch/nn/module.h>

#include <concepts>
#include <memory>
#include <optional>

#include "lockstep/comm/group.h"

namespace lockstep {

/// Converts every BatchNorm1d, 2d and 3d in `module` (also inside a TorchScript module), so that it
/// normalizes over the group in training mode. Names, parameters and the layer's class do not change, nor
/// does evaluation. The caller must keep the group alive. Throws InputError for a layer with neither
/// parameters nor buffers (affine and track_running_stats are both off). With a TorchScript module, libtorch
/// no longer optimizes scripts in this thread, because its optimizer would restore its own batch
/// normalization.
//
// A C++ module's forward is not virtual, so lockstep registers a kernel for aten::batch_norm that recognizes
// converted layers by their parameters or buffers.
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

/// The layer for a new module, with names and numerical results as in torch.nn.SyncBatchNorm. Unlike a
/// converted BatchNorm1d, it accepts a batch of one sample on a rank.
class SyncBatchNorm : public torch::nn::Module {
 public:
  SyncBatchNorm(int64_t features, ProcessGroup group, SyncBatchNormOptions options = {});
  /// Takes [n, features, ...]; in training mode normalizes over the batch of the whole group.
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
