#include "lockstep/optim/clip.h"

#include <ATen/native/ForeachUtils.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

std::vector<at::Tensor> grads_of(const std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> grads;
  for (const auto& param : params)
    if (param.grad().defined()) grads.push_back(param.grad());
  return grads;
}

// The indices of those of each device and type, in Python's order.
std::vector<std::vector<size_t>> kinds_of(const std::vector<at::Tensor>& grads) {
  std::vector<std::vector<size_t>> kinds;
  if (grads.empty()) return kinds;
  const at::native::nested_optional_tensorvec_t lists = {
      std::vector<std::optional<at::Tensor>>(grads.begin(), grads.end())};
  const auto grouped =
      at::native::_group_tensors_by_first_tensors_device_and_dtype(lists, /*with_indices=*/true);
  for (const auto& [kind, alike] : grouped) kinds.push_back(alike.second);
  return kinds;
}

std::vector<at::Tensor> pick(const std::vector<at::Tensor>& all, const std::vector<size_t>& places) {
  std::vector<at::Tensor> picked;
  for (const auto place : places) picked.push_back(all[place]);
  return picked;
}

std::vector<at::Tensor> norms_of(const std::vector<at::Tensor>& grads) {
  std::vector<at::Tensor> norms(grads.size());
  for (const auto& places : kinds_of(grads)) {
    const auto alike = at::_foreach_norm(pick(grads, places), 2);
    for (size_t i = 0; i < places.size(); ++i) norms[places[i]] = alike[i];
  }
  return norms;
}

// Multiplying by 1 where nothing is clipped avoids waiting for the norm, as in Python.
void scale_down(const std::vector<at::Tensor>& grads, const at::Tensor& total, double max_norm) {
  const auto factor = at::clamp_max((total + 1e-6).reciprocal() * max_norm, 1.0);
  for (const auto& places : kinds_of(grads)) {
    const auto alike = pick(grads, places);
    at::_foreach_mul_(alike, factor.to(alike.front().device()));
  }
}

}  // namespace

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& params, double max_norm,
                           const NormGather& all_norms) {
  const torch::NoGradGuard no_grad;
  const auto grads = grads_of(params);
  const auto norms = norms_of(grads);
  std::vector<at::Tensor> of_params;
  auto next = norms.begin();
  for (const auto& param : params) of_params.push_back(param.grad().defined() ? *next++ : at::Tensor());
  const auto all = all_norms(of_params);
  if (all.numel() == 0) return at::zeros({});
  const auto total = at::linalg_vector_norm(all, 2);
  scale_down(grads, total, max_norm);
  return total;
}

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& params, double max_norm) {
  return clip_grad_norm_(params, max_norm, [&params](const std::vector<at::Tensor>& own) {
    std::vector<at::Tensor> norms, in_order;
    for (const auto& norm : own)
      if (norm.defined()) norms.push_back(norm);
    for (const auto& places : kinds_of(grads_of(params)))
      for (const auto& norm : pick(norms, places)) in_order.push_back(norm.to(norms.front().device()));
    return in_order.empty() ? at::zeros({0}) : at::stack(in_order);
  });
}

}  // namespace lockstep
