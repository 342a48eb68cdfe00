#pragma once
// Synchronized batch normalization, which libtorch has for CUDA alone, by formula in operators of every
// device. The pretended GPUs run it, and tests/parallel gives it to the CPU.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <optional>
#include <tuple>
#include <vector>

namespace lab::batch_norm {

using at::Tensor;
using Optional = std::optional<Tensor>;

/// In float where the type is a half precision.
inline at::Tensor widened(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

inline bool has(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined();
}

inline std::vector<int64_t> all_but_channels(const Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < input.dim(); ++d)
    if (d != 1) dims.push_back(d);
  return dims;
}

inline Tensor over_channels(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = -1;
  return values.view(sizes);
}

inline std::tuple<Tensor, Tensor> stats(const Tensor& given, double eps) {
  const Tensor input = widened(given);
  const auto dims = all_but_channels(input);
  return {input.mean(dims), (input.var(dims, /*unbiased=*/false) + eps).rsqrt()};
}

inline void move_average(const Optional& running, const Tensor& value, double momentum) {
  if (has(running)) running->mul_(1 - momentum).add_(value.to(running->scalar_type()), momentum);
}

/// Row after row, with divisions by the count so far, as CUDA's batch_norm_reduce_statistics_kernel.
inline std::tuple<Tensor, Tensor> gather_with_counts(const Tensor& /*input*/, const Tensor& means,
                                                     const Tensor& invstds, const Optional& running_mean,
                                                     const Optional& running_var, double momentum, double eps,
                                                     const Tensor& given_counts) {
  const Tensor counts = given_counts.to(means.scalar_type()).view({-1});
  Tensor mean = at::zeros_like(means[0]), squares = at::zeros_like(mean), all = at::zeros_like(mean);
  for (int64_t row = 0; row < means.size(0); ++row) {
    const Tensor count = counts[row], share = (all + count).reciprocal();
    squares =
        squares + (invstds[row].pow(-2) - eps) * count + (means[row] - mean).pow(2) * all * count * share;
    mean = all * share * mean + count * share * means[row];
    all = all + count;
  }
  move_average(running_mean, mean, momentum);
  move_average(running_var, squares / (all - 1), momentum);
  return {mean, (squares / all + eps).rsqrt()};
}

inline std::tuple<Tensor, Tensor> gather(const Tensor& input, const Tensor& means, const Tensor& invstds,
                                         const Optional& running_mean, const Optional& running_var,
                                         double momentum, double eps, int64_t count) {
  const Tensor counts = at::full({means.size(0)}, static_cast<double>(count), means.options());
  return gather_with_counts(input, means, invstds, running_mean, running_var, momentum, eps, counts);
}

inline Tensor apply(const Tensor& input, const Optional& weight, const Optional& bias, const Tensor& mean,
                    const Tensor& invstd, double /*eps*/) {
  Tensor result = (widened(input) - over_channels(mean, input)) * over_channels(invstd, input);
  if (has(weight)) result = result * over_channels(*weight, input);
  if (has(bias)) result = result + over_channels(*bias, input);
  return result.to(input.scalar_type());
}

inline Tensor& apply_to(const Tensor& input, const Optional& weight, const Optional& bias, const Tensor& mean,
                        const Tensor& invstd, double eps, Tensor& out) {
  const Tensor result = apply(input, weight, bias, mean, invstd, eps);
  out.resize_(result.sizes());
  return out.copy_(result);
}

inline std::tuple<Tensor, Tensor, Tensor, Tensor> reduce_backward(const Tensor& given, const Tensor& input,
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

inline Tensor apply_backward(const Tensor& gradient, const Tensor& input, const Tensor& mean,
                             const Tensor& invstd, const Optional& weight, const Tensor& sum_dy,
                             const Tensor& sum_dy_xmu, const Tensor& counts) {
  const Tensor share = counts.sum().to(mean.scalar_type()).reciprocal();
  const Tensor centred = widened(input) - over_channels(mean, input);
  const Tensor slope = over_channels(sum_dy_xmu * share * invstd * invstd, input);
  const Tensor scale = has(weight) ? invstd * *weight : invstd;
  const Tensor inner = widened(gradient) - over_channels(sum_dy * share, input) - centred * slope;
  return (inner * over_channels(scale, input)).to(input.scalar_type());
}

}  // namespace lab::batch_norm
