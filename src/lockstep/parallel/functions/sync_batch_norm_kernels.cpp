#include "lockstep/parallel/functions/sync_batch_norm_kernels.h"

#include <ATen/AccumulateType.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/parallel/functions/custom_function.h"

namespace lockstep::parallel {
namespace {

// The kernels take channels-last tensors as they are, all others contiguous.
at::Tensor in_order(const at::Tensor& tensor) {
  const bool channels_last = tensor.is_contiguous(at::MemoryFormat::ChannelsLast) ||
                             tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d);
  return channels_last ? tensor : tensor.contiguous();
}

at::Tensor or_none(const OptionalTensor& tensor) {
  return tensor ? tensor->contiguous() : at::Tensor();
}

// Statistics and sums are kept in the type the kernels add in: float for half, also where a rank has no
// samples.
at::TensorOptions exact(const at::Tensor& input) {
  return input.options().dtype(at::toAccumulateType(input.scalar_type(), input.device().type()));
}

// mean, invstd and count in one row. A rank without samples counts for nothing; its invstd is 1, because the
// kernel divides by it.
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
    const at::Tensor input = in_order(given), weight = or_none(given_weight);
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
  // what the other ranks hold only the device knows: nobody waits for it to find out
  if (group->getSize() == 1 && input.numel() == input.size(1)) {
    throw InputError("batch normalisation over one value a channel has no variance",
                     format("input of shape {}", c10::str(input.sizes())), "give it more than one sample");
  }
  return SyncBatchNormByKernels::apply(input, if_defined(weight), if_defined(bias), if_defined(running_mean),
                                       if_defined(running_var), momentum, eps, group);
}

}  // namespace lockstep::parallel
