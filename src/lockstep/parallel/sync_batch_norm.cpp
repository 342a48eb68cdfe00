#include "lockstep/parallel/sync_batch_norm.h"

#include <ATen/AccumulateType.h>
#include <ATen/ops/batch_norm_native.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <mutex>
#include <optional>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/base/python_scalar.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

// A custom function takes no undefined tensor.
OptionalTensor if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

// --- on the CPU

// of a rank's own samples, per channel: mean and biased variance; and of how many values
struct Moments {
  at::Tensor mean, var;
  double count = 0;
};

std::vector<int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < input.dim(); ++d)
    if (d != 1) dims.push_back(d);
  return dims;
}

at::Tensor per_channel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = -1;
  return values.view(shape);
}

Moments local_moments(const at::Tensor& input) {
  const int64_t channels = input.size(1);
  const auto exact = input.options().dtype(at::kDouble);
  if (input.numel() == 0) return {at::zeros({channels}, exact), at::zeros({channels}, exact), 0};
  const auto dims = all_but_channels(input);
  // half types are summed in float, as libtorch does
  const at::Tensor wide = input.scalar_type() == at::kDouble ? input : input.to(at::kFloat);
  const auto [var, mean] =
      at::var_mean(wide, at::OptionalIntArrayRef(dims), /*correction=*/c10::Scalar(0), /*keepdim=*/false);
  return {mean.to(at::kDouble), var.to(at::kDouble),
          static_cast<double>(input.numel()) / static_cast<double>(channels)};
}

// in doubles, so that the combination adds no noticeable error
Moments global_moments(const Moments& local, const ProcessGroup& group) {
  const int64_t channels = local.mean.numel(), world = group->getSize();
  const auto options = local.mean.options();
  at::Tensor mine = at::cat({local.mean, local.var, at::full({1}, local.count, options)});
  at::Tensor all = at::empty({world * mine.numel()}, options);
  base::own_all_gather_single(*group, all, mine)->wait();
  all = all.view({world, -1});
  const at::Tensor means = all.narrow(1, 0, channels), vars = all.narrow(1, channels, channels);
  const at::Tensor counts = all.narrow(1, 2 * channels, 1);
  const double total = counts.sum().item<double>();
  if (total == 0) return {at::zeros_like(local.mean), at::zeros_like(local.var), 0};
  const at::Tensor mean = (means * counts).sum(0) / total;
  const at::Tensor var = ((vars + (means - mean).square()) * counts).sum(0) / total;
  return {mean, var, total};
}

void move_running(const OptionalTensor& running, const at::Tensor& batch, double momentum) {
  if (!running) return;
  at::NoGradGuard no_grad;
  running->mul_(base::python_scalar(1 - momentum)).add_(batch.to(running->scalar_type()), momentum);
}

struct SyncBatchNormFunction : torch::autograd::Function<SyncBatchNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const OptionalTensor& given_weight, const OptionalTensor& given_bias,
                            const OptionalTensor& running_mean, const OptionalTensor& running_var,
                            double momentum, double eps, const ProcessGroup& group) {
    const at::Tensor weight = given_weight.value_or(at::Tensor()), bias = given_bias.value_or(at::Tensor());
    const Moments all = global_moments(local_moments(input), group);
    if (all.count == 1) {
      throw InputError("batch normalization over one value per channel has no variance",
                       format("input of shape {}", c10::str(input.sizes())),
                       "give the ranks more than one sample");
    }
    const at::Tensor invstd = (all.var + eps).rsqrt();
    if (all.count > 0) {
      move_running(running_mean, all.mean, momentum);
      move_running(running_var, all.var * (all.count / (all.count - 1)), momentum);
    }
    context->save_for_backward({input, weight, all.mean, invstd});
    context->saved_data["count"] = all.count;
    context->saved_data["has_bias"] = bias.defined();
    context->saved_data["group"] = group;
    at::Tensor scale = invstd, shift = -all.mean * invstd;
    if (weight.defined()) {
      scale = scale * weight;
      shift = shift * weight;
    }
    if (bias.defined()) shift = shift + bias;
    const auto type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return (input * per_channel(scale.to(type), input) + per_channel(shift.to(type), input))
        .to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &invstd = saved[3];
    const auto group = context->saved_data["group"].toCustomClass<c10d::ProcessGroup>();
    const double count = context->saved_data["count"].toDouble();
    const auto type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor dy = gradients[0].to(type), centred = input - per_channel(mean.to(type), input);
    const auto dims = all_but_channels(input);
    const at::Tensor own_dy = dy.sum(dims).to(at::kDouble),
                     own_dy_x = (dy * centred).sum(dims).to(at::kDouble);

    std::vector<at::Tensor> sums = {at::cat({own_dy, own_dy_x})};
    group->allreduce(sums)->wait();
    const at::Tensor mean_dy = sums[0].narrow(0, 0, own_dy.numel()) / std::max(count, 1.0);
    const at::Tensor mean_dy_x = sums[0].narrow(0, own_dy.numel(), own_dy.numel()) / std::max(count, 1.0);

    const at::Tensor scale = weight.defined() ? invstd * weight : invstd;
    const at::Tensor input_gradient =
        ((dy - per_channel(mean_dy.to(type), input) -
          centred * per_channel((invstd.square() * mean_dy_x).to(type), input)) *
         per_channel(scale.to(type), input))
            .to(input.scalar_type());
    // weight and bias stay local: DDP averages them with the other gradients
    const at::Tensor weight_gradient =
        weight.defined() ? (own_dy_x * invstd).to(weight.scalar_type()) : at::Tensor();
    const at::Tensor bias_gradient = context->saved_data["has_bias"].toBool()
                                         ? own_dy.to(weight.defined() ? weight.scalar_type() : type)
                                         : at::Tensor();
    return {input_gradient, weight_gradient, bias_gradient, {}, {}, {}, {}, {}};
  }
};

// --- by libtorch's own kernels, which are CUDA's: nothing waits for the device

// The kernels take channels-last tensors as they are, all others contiguous.
at::Tensor in_order(const at::Tensor& tensor) {
  const bool channels_last = tensor.is_contiguous(at::MemoryFormat::ChannelsLast) ||
                             tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d);
  return channels_last ? tensor : tensor.contiguous();
}

at::Tensor contiguous_or_undefined(const OptionalTensor& tensor) {
  return tensor ? tensor->contiguous() : at::Tensor();
}

// Statistics and sums have the type the kernels add in: float for half, also on a rank without samples.
at::TensorOptions exact(const at::Tensor& input) {
  return input.options().dtype(at::toAccumulateType(input.scalar_type(), input.device().type()));
}

// mean, invstd and count in one row. A rank without samples counts for nothing; its invstd is 1, a divisor.
at::Tensor own_statistics(const at::Tensor& input, double eps) {
  const int64_t channels = input.size(1);
  if (input.numel() == 0) {
    return at::cat({at::zeros({channels}, exact(input)), at::ones({channels}, exact(input)),
                    at::zeros({1}, exact(input))});
  }
  const auto [mean, invstd] = at::batch_norm_stats(input, eps);
  return at::cat({mean, invstd, at::full({1}, input.numel() / channels, mean.options())});
}

// Every rank's row, those without samples last: the kernel divides by the count so far, which therefore must
// not begin at zero. Python takes the empty ones out, and waits for the device to do so.
at::Tensor all_statistics(at::Tensor own, const ProcessGroup& group) {
  at::Tensor all = at::empty({group->getSize() * own.numel()}, own.options());
  base::own_all_gather_single(*group, all, own)->wait();
  all = all.view({group->getSize(), own.numel()});
  const at::Tensor empty = all.select(1, -1).lt(1).to(at::kInt);
  return all.index_select(0, at::argsort(empty, /*stable=*/true, /*dim=*/0));
}

// The same sums on every rank; a rank without samples adds nothing.
at::Tensor summed(at::Tensor own, const ProcessGroup& group) {
  std::vector<at::Tensor> sums = {std::move(own)};
  group->allreduce(sums)->wait();
  return sums[0];
}

// torch/nn/modules/_functions.py, SyncBatchNorm, line by line
struct SyncBatchNormByKernels : torch::autograd::Function<SyncBatchNormByKernels> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                            const OptionalTensor& given_weight, const OptionalTensor& bias,
                            const OptionalTensor& running_mean, const OptionalTensor& running_var,
                            double momentum, double eps, const ProcessGroup& group) {
    const at::Tensor input = in_order(given), weight = contiguous_or_undefined(given_weight);
    const int64_t channels = input.size(1);
    const at::Tensor all = all_statistics(own_statistics(input, eps), group);
    const at::Tensor counts = all.select(1, -1).contiguous();
    const auto [mean, invstd] = at::batch_norm_gather_stats_with_counts(
        input, all.narrow(1, 0, channels).contiguous(), all.narrow(1, channels, channels).contiguous(),
        running_mean, running_var, momentum, eps,
        running_mean ? counts.to(running_mean->scalar_type()) : counts);
    context->save_for_backward({input, weight, mean, invstd, counts.to(at::kInt)});
    context->saved_data["group"] = group;
    context->saved_data["has_bias"] = bias.has_value();
    return input.numel() > 0 ? at::batch_norm_elemt(input, weight, bias, mean, invstd, eps)
                             : at::empty_like(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &invstd = saved[3];
    const auto group = context->saved_data["group"].toCustomClass<c10d::ProcessGroup>();
    const bool of_input = context->needs_input_grad(0);
    const bool of_weight = weight.defined() && context->needs_input_grad(1);
    // edges are counted over the tensors that were given
    const bool of_bias =
        context->saved_data["has_bias"].toBool() && context->needs_input_grad(weight.defined() ? 2 : 1);
    const int64_t channels = input.size(1);
    variable_list result(8);
    if (input.numel() == 0) {
      if (of_input) {
        summed(at::zeros({2 * channels}, exact(input)), group);
        result[0] = at::zeros_like(input);
      }
      return result;  // undefined is zero to the engine, and DDP averages it as such
    }
    const at::Tensor gradient = in_order(gradients[0]);
    const auto [sum_dy, sum_dy_xmu, weight_gradient, bias_gradient] =
        at::batch_norm_backward_reduce(gradient, input, mean, invstd, weight, of_input, of_weight, of_bias);
    if (of_input) {
      const at::Tensor sums = summed(at::cat({sum_dy, sum_dy_xmu}), group);
      result[0] = at::batch_norm_backward_elemt(
          gradient, input, mean, invstd, weight.defined() ? weight.to(mean.scalar_type()) : weight,
          sums.narrow(0, 0, channels), sums.narrow(0, channels, channels), saved[4]);
    }
    // weight and bias stay local: DDP averages them with the other gradients
    if (of_weight) result[1] = weight_gradient;
    if (of_bias) result[2] = bias_gradient;
    return result;
  }
};

}  // namespace

at::Tensor sync_batch_norm_by_kernels(const at::Tensor& input, const at::Tensor& weight,
                                      const at::Tensor& bias, const at::Tensor& running_mean,
                                      const at::Tensor& running_var, double momentum, double eps,
                                      const ProcessGroup& group) {
  // the other ranks' counts are on the device, and reading them would wait for it
  if (group->getSize() == 1 && input.numel() == input.size(1)) {
    throw InputError("batch normalization over one value per channel has no variance",
                     format("input of shape {}", c10::str(input.sizes())), "give it more than one sample");
  }
  return SyncBatchNormByKernels::apply(input, if_defined(weight), if_defined(bias), if_defined(running_mean),
                                       if_defined(running_var), momentum, eps, group);
}

at::Tensor sync_batch_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var, double momentum,
                           double eps, const ProcessGroup& group) {
  if (input.dim() < 2) {
    throw InputError(format("batch normalization of a tensor with {} dimensions", input.dim()),
                     "sync_batch_norm", "give it (samples, channels, ...)");
  }
  if (input.size(1) == 0) {
    throw InputError("batch normalization of a tensor without channels",
                     format("input of shape {}", c10::str(input.sizes())), "give it at least one channel");
  }
  if (input.is_cuda())
    return sync_batch_norm_by_kernels(input, weight, bias, running_mean, running_var, momentum, eps, group);
  return SyncBatchNormFunction::apply(input, if_defined(weight), if_defined(bias), if_defined(running_mean),
                                      if_defined(running_var), momentum, eps, group);
}

}  // namespace lockstep::parallel

namespace lockstep {

// convert_sync_batchnorm: our own kernel for aten::batch_norm, which knows the converted layers.

namespace {

// Converted layers, known by the first defined tensor that they hand to aten::batch_norm. Both sides are
// weak: a layer or a group that is gone leaves only a row, which a new layer at its address replaces.
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

// aten::batch_norm is composite: a kernel for the autograd keys has precedence over it
void replace_batch_norm() {
  static const bool is_replaced = [] {
    for (const auto key : {c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA}) {
      auto* library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
      library->impl("batch_norm", batch_norm);
    }
    return true;
  }();
  (void)is_replaced;
}

bool is_batch_norm(const torch::nn::Module& layer) {
  return layer.as<torch::nn::BatchNorm1d>() || layer.as<torch::nn::BatchNorm2d>() ||
         layer.as<torch::nn::BatchNorm3d>();
}

}  // namespace

void convert_sync_batchnorm(torch::nn::Module& module, const ProcessGroup& group) {
  replace_batch_norm();
  for (const auto& layer : module.named_modules("", /*include_self=*/true)) {
    const auto buffers = layer.value()->named_buffers(/*recurse=*/false);
    const auto parameters = layer.value()->named_parameters(/*recurse=*/false);
    const auto *mean = buffers.find("running_mean"), *weight = parameters.find("weight");
    const bool is_known = is_batch_norm(*layer.value());
    const bool tracks = mean && mean->defined(), is_affine = weight && weight->defined();
    if (!tracks && !is_known) continue;  // a layer of a TorchScript module is known by its buffers
    if (!tracks && !is_affine)
      throw InputError("a batch-norm layer with neither weight nor running statistics cannot be synchronized",
                       layer.key(), "give it affine(true), or use lockstep::SyncBatchNorm there");
    converted().add(is_affine ? *weight : *mean, group);
    // From its second forward on, an optimized script differentiates libtorch's batch_norm, past our kernel.
    if (!is_known) torch::jit::setGraphExecutorOptimize(false);
  }
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
