#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <optional>
#include <tuple>
#include <vector>

#include "boxed.h"

// Operators that only CUDA has, by formula in operators that both have.

namespace lab {
namespace {

/// In float where the type is a half precision.
at::Tensor widened(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

bool has(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined();
}

// Dropout; its mask is drawn by bernoulli_, which takes CUDA's generator.

using at::Tensor;

std::tuple<Tensor, Tensor> fused_dropout(const Tensor& input, double kept,
                                         std::optional<at::Generator> generator) {
  const Tensor mask = at::empty_like(input, input.options().dtype(at::kByte)).bernoulli_(kept, generator);
  return {input * mask * (1 / kept), mask};
}

Tensor masked_scale(const Tensor& input, const Tensor& mask, double scale) {
  return input * mask * scale;
}

std::tuple<Tensor, Tensor> dropout(const Tensor& input, double dropped, std::optional<bool> train) {
  const auto as_mask = input.options().dtype(at::kBool);
  if (!train.value_or(true) || input.numel() == 0) return {input.clone(), at::ones_like(input, as_mask)};
  if (dropped == 1) return {at::zeros_like(input), at::zeros_like(input, as_mask)};
  const Tensor mask = at::empty_like(input, as_mask).bernoulli_(1 - dropped);
  return {input * mask * (1 / (1 - dropped)), mask};
}

// Synchronised batch normalisation.

using Optional = std::optional<Tensor>;

std::vector<int64_t> all_but_channels(const Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

Tensor over_channels(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = -1;
  return values.view(sizes);
}

std::tuple<Tensor, Tensor> stats(const Tensor& given, double eps) {
  const Tensor input = widened(given);
  const auto dims = all_but_channels(input);
  return {input.mean(dims), (input.var(dims, /*unbiased=*/false) + eps).rsqrt()};
}

void move_average(const Optional& running, const Tensor& value, double momentum) {
  if (has(running)) running->mul_(1 - momentum).add_(value.to(running->scalar_type()), momentum);
}

std::tuple<Tensor, Tensor> gather_with_counts(const Tensor& /*input*/, const Tensor& means,
                                              const Tensor& invstds, const Optional& running_mean,
                                              const Optional& running_var, double momentum, double eps,
                                              const Tensor& given_counts) {
  const Tensor counts = given_counts.to(means.scalar_type()).view({-1, 1});
  const Tensor all = counts.sum();
  const Tensor mean = (means * counts).sum(0) / all;
  const Tensor vars = invstds.pow(-2) - eps;
  const Tensor squares = ((vars + (means - mean).pow(2)) * counts).sum(0);
  move_average(running_mean, mean, momentum);
  move_average(running_var, squares / (all - 1), momentum);
  return {mean, (squares / all + eps).rsqrt()};
}

std::tuple<Tensor, Tensor> gather(const Tensor& input, const Tensor& means, const Tensor& invstds,
                                  const Optional& running_mean, const Optional& running_var, double momentum,
                                  double eps, int64_t count) {
  const Tensor counts = at::full({means.size(0)}, static_cast<double>(count), means.options());
  return gather_with_counts(input, means, invstds, running_mean, running_var, momentum, eps, counts);
}

Tensor apply(const Tensor& input, const Optional& weight, const Optional& bias, const Tensor& mean,
             const Tensor& invstd, double /*eps*/) {
  Tensor result = (widened(input) - over_channels(mean, input)) * over_channels(invstd, input);
  if (has(weight)) result = result * over_channels(*weight, input);
  if (has(bias)) result = result + over_channels(*bias, input);
  return result.to(input.scalar_type());
}

Tensor& apply_to(const Tensor& input, const Optional& weight, const Optional& bias, const Tensor& mean,
                 const Tensor& invstd, double eps, Tensor& out) {
  const Tensor result = apply(input, weight, bias, mean, invstd, eps);
  out.resize_(result.sizes());
  return out.copy_(result);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> reduce_backward(const Tensor& given, const Tensor& input,
                                                           const Tensor& mean, const Tensor& invstd,
                                                           const Optional& weight, bool of_input,
                                                           bool of_weight, bool of_bias) {
  const auto dims = all_but_channels(input);
  const Tensor gradient = widened(given);
  const Tensor sum_dy = gradient.sum(dims);
  const Tensor sum_dy_xmu = (gradient * (widened(input) - over_channels(mean, input))).sum(dims);
  const auto type = has(weight) ? weight->scalar_type() : sum_dy.scalar_type();
  return {of_input ? sum_dy : Tensor(), of_input ? sum_dy_xmu : Tensor(),
          of_weight ? (sum_dy_xmu * invstd).to(type) : Tensor(),
          of_bias ? sum_dy.to(type, /*non_blocking=*/false, /*copy=*/true) : Tensor()};
}

Tensor apply_backward(const Tensor& gradient, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                      const Optional& weight, const Tensor& sum_dy, const Tensor& sum_dy_xmu,
                      const Tensor& counts) {
  const Tensor share = counts.sum().to(mean.scalar_type()).reciprocal();
  const Tensor centred = widened(input) - over_channels(mean, input);
  const Tensor slope = over_channels(sum_dy_xmu * share * invstd * invstd, input);
  const Tensor scale = has(weight) ? invstd * *weight : invstd;
  const Tensor inner = widened(gradient) - over_channels(sum_dy * share, input) - centred * slope;
  return (inner * over_channels(scale, input)).to(input.scalar_type());
}

}  // namespace

void add_dropout(Kernels& kernels) {
  add_kernel(kernels, "_fused_dropout", "", &fused_dropout);
  add_kernel(kernels, "_masked_scale", "", &masked_scale);
  add_kernel(kernels, "native_dropout", "", &dropout);
}

void add_batch_norm(Kernels& kernels) {
  add_kernel(kernels, "batch_norm_stats", "", &stats);
  add_kernel(kernels, "batch_norm_gather_stats", "", &gather);
  add_kernel(kernels, "batch_norm_gather_stats_with_counts", "", &gather_with_counts);
  add_kernel(kernels, "batch_norm_elemt", "", &apply);
  add_kernel(kernels, "batch_norm_elemt", "out", &apply_to);
  add_kernel(kernels, "batch_norm_backward_reduce", "", &reduce_backward);
  add_kernel(kernels, "batch_norm_backward_elemt", "", &apply_backward);
}

}  // namespace lab
