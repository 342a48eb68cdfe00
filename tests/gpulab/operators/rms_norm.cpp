// Normalisation by the root of the mean square.
#include <ATen/ops/mean.h>

#include <limits>

#include "formulas.h"
#include "kernels.h"

namespace lab {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

std::vector<int64_t> dims_from(int64_t first, int64_t end) {
  std::vector<int64_t> dims;
  for (int64_t d = first; d < end; ++d) dims.push_back(d);
  return dims;
}

double epsilon_of(at::ScalarType type) {
  return type == at::kDouble ? std::numeric_limits<double>::epsilon()
                             : static_cast<double>(std::numeric_limits<float>::epsilon());
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& given, at::IntArrayRef shape, const Optional& weight,
                                    std::optional<double> eps) {
  const Tensor input = widened(given);
  const auto dims = dims_from(input.dim() - static_cast<int64_t>(shape.size()), input.dim());
  const Tensor mean_square = (input * input).mean(dims, /*keepdim=*/true);
  const Tensor rstd = (mean_square + eps.value_or(epsilon_of(input.scalar_type()))).rsqrt();
  Tensor result = input * rstd;
  if (has(weight)) result = result * widened(*weight);
  return {result.to(given.scalar_type()), rstd};
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& given, const Tensor& input, at::IntArrayRef shape,
                                             const Tensor& rstd, const Optional& weight,
                                             std::array<bool, 2> wanted) {
  const auto outer = input.dim() - static_cast<int64_t>(shape.size());
  const Tensor normal = widened(input) * rstd, gradient = widened(given);
  const Tensor scaled = has(weight) ? gradient * widened(*weight) : gradient;
  const Tensor shared = (scaled * normal).mean(dims_from(outer, input.dim()), /*keepdim=*/true);
  Tensor of_input, of_weight;
  if (wanted[0]) of_input = ((scaled - normal * shared) * rstd).to(input.scalar_type());
  if (wanted[1] && has(weight)) {
    of_weight = gradient * normal;
    if (outer > 0) of_weight = of_weight.sum(dims_from(0, outer));
    of_weight = of_weight.to(weight->scalar_type());
  }
  return {of_input, of_weight};
}

}  // namespace

void add_rms_norm(Kernels& kernels) {
  add_kernel(kernels, "_fused_rms_norm", "", &rms_norm);
  add_kernel(kernels, "_fused_rms_norm_backward", "", &rms_norm_backward);
}

}  // namespace lab
