#include "lockstep/parallel/sync_batch_norm.h"

#include <ATen/ops/batch_norm_native.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <mutex>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/parallel/sync_batch_norm_function.h"

namespace lockstep {

// convert_sync_batchnorm: a kernel of ours for aten::batch_norm, which knows the converted layers.

namespace {

// Converted layers, known by the tensor they hand to aten::batch_norm first that is defined. Both sides are
// weak: a layer or a group that is gone leaves no trace but a row, which a new layer at its address replaces.
class ConvertedLayers {
 public:
  void add(const at::Tensor& mark, const ProcessGroup& group) {
    const std::lock_guard lock(mutex_);
    rows_.insert_or_assign(mark.unsafeGetTensorImpl(),
                           Row{c10::weak_intrusive_ptr<at::TensorImpl>(mark.getIntrusivePtr()),
                               c10::weak_intrusive_ptr<c10d::ProcessGroup>(group)});
  }

  ProcessGroup find(const at::Tensor& mark) {
    const std::lock_guard lock(mutex_);
    const auto row = rows_.find(mark.unsafeGetTensorImpl());
    if (row == rows_.end() || row->second.mark.expired()) return {};
    ProcessGroup group = row->second.group.lock();
    if (!group)
      throw Error("a SyncBatchNorm layer outlived its process group", "",
                  "keep the group while the model trains");
    return group;
  }

 private:
  struct Row {
    c10::weak_intrusive_ptr<at::TensorImpl> mark;
    c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
  };
  std::mutex mutex_;
  std::unordered_map<const at::TensorImpl*, Row> rows_;
};

ConvertedLayers& converted() {
  static ConvertedLayers layers;
  return layers;
}

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor or_undefined(const OptionalTensor& tensor) {
  return tensor.value_or(at::Tensor());
}

at::Tensor batch_norm(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                      const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
                      double momentum, double eps, bool cudnn_enabled) {
  if (training) {
    const at::Tensor w = or_undefined(weight), mean = or_undefined(running_mean);
    const at::Tensor& mark = w.defined() ? w : mean;
    if (const ProcessGroup group = mark.defined() ? converted().find(mark) : ProcessGroup();
        group && group->getSize() > 1) {
      return parallel::sync_batch_norm(input, w, or_undefined(bias), mean, or_undefined(running_var),
                                       momentum, eps, group);
    }
  }
  return at::native::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
                                cudnn_enabled);
}

// aten::batch_norm is composite: a kernel for the autograd keys comes before it
void take_batch_norm_over() {
  static torch::Library* cpu = [] {
    auto* library =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__);
    library->impl("batch_norm", batch_norm);
    return library;
  }();
  static torch::Library* cuda = [] {
    auto* library =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCUDA, __FILE__, __LINE__);
    library->impl("batch_norm", batch_norm);
    return library;
  }();
  (void)cpu;
  (void)cuda;
}

bool is_batch_norm(const torch::nn::Module& layer) {
  return layer.as<torch::nn::BatchNorm1d>() || layer.as<torch::nn::BatchNorm2d>() ||
         layer.as<torch::nn::BatchNorm3d>();
}

// The layers that keep running statistics: found by their buffers, so also in a TorchScript module.
void convert_tracking_layers(const torch::nn::Module& module, const ProcessGroup& group) {
  for (const auto& layer : module.named_modules("", /*include_self=*/true)) {
    const auto buffers = layer.value()->named_buffers(/*recurse=*/false);
    const auto* mean = buffers.find("running_mean");
    if (!mean || !mean->defined()) continue;
    const auto parameters = layer.value()->named_parameters(/*recurse=*/false);
    const auto* weight = parameters.find("weight");
    converted().add(weight && weight->defined() ? *weight : *mean, group);
    // From its second forward on, an optimised script differentiates libtorch's own batch_norm, past our
    // kernel.
    if (!is_batch_norm(*layer.value())) torch::jit::setGraphExecutorOptimize(false);
  }
}

void convert_affine_layers(const torch::nn::Module& module, const ProcessGroup& group) {
  for (const auto& layer : module.named_modules("", /*include_self=*/true)) {
    if (!is_batch_norm(*layer.value())) continue;
    const auto buffers = layer.value()->named_buffers(/*recurse=*/false);
    if (const auto* mean = buffers.find("running_mean"); mean && mean->defined()) continue;
    const auto parameters = layer.value()->named_parameters(/*recurse=*/false);
    const auto* weight = parameters.find("weight");
    if (!weight || !weight->defined()) {
      throw InputError("a batch-norm layer with neither weight nor running statistics cannot be synchronised",
                       layer.key(), "give it affine(true), or use lockstep::SyncBatchNorm there");
    }
    converted().add(*weight, group);
  }
}

}  // namespace

void convert_sync_batchnorm(torch::nn::Module& module, const ProcessGroup& group) {
  take_batch_norm_over();
  convert_tracking_layers(module, group);
  convert_affine_layers(module, group);
}

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
