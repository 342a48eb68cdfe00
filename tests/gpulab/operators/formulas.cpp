#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <optional>
#include <tuple>

#include "batch_norm.h"
#include "boxed.h"

// Operators that only CUDA has, by formula in operators that both have.

namespace lab {
namespace {

using at::Tensor;

// Dropout; its mask is drawn by bernoulli_, which takes CUDA's generator.

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

}  // namespace

void add_dropout(Kernels& kernels) {
  add_kernel(kernels, "_fused_dropout", "", &fused_dropout);
  add_kernel(kernels, "_masked_scale", "", &masked_scale);
  add_kernel(kernels, "native_dropout", "", &dropout);
}

void add_batch_norm(Kernels& kernels) {
  add_kernel(kernels, "batch_norm_stats", "", &batch_norm::stats);
  add_kernel(kernels, "batch_norm_gather_stats", "", &batch_norm::gather);
  add_kernel(kernels, "batch_norm_gather_stats_with_counts", "", &batch_norm::gather_with_counts);
  add_kernel(kernels, "batch_norm_elemt", "", &batch_norm::apply);
  add_kernel(kernels, "batch_norm_elemt", "out", &batch_norm::apply_to);
  add_kernel(kernels, "batch_norm_backward_reduce", "", &batch_norm::reduce_backward);
  add_kernel(kernels, "batch_norm_backward_elemt", "", &batch_norm::apply_backward);
}

}  // namespace lab
