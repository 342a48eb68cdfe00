#include "lockstep/optim/clip.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

namespace lockstep {
namespace {

bool on_one_gpu(const std::vector<at::Tensor>& grads) {
  const auto first = grads.front().device();
  const auto there = [&](const at::Tensor& grad) { return grad.device() == first; };
  return first.is_cuda() && std::all_of(grads.begin(), grads.end(), there);
}

std::vector<at::Tensor> norms_of(const std::vector<at::Tensor>& grads) {
  if (on_one_gpu(grads)) return at::_foreach_norm(grads, 2);
  std::vector<at::Tensor> norms;
  for (const auto& grad : grads) norms.push_back(at::linalg_vector_norm(grad, 2));
  return norms;
}

// Multiplying by 1 where nothing is clipped spares the wait for the norm, and is what Python does.
void scale_down(std::vector<at::Tensor>& grads, const at::Tensor& total, double max_norm) {
  const auto factor = at::clamp_max((total + 1e-6).reciprocal() * max_norm, 1.0);
  if (on_one_gpu(grads)) {
    at::_foreach_mul_(grads, factor);
  } else {
    for (auto& grad : grads) grad.mul_(factor.to(grad.device()));
  }
}

}  // namespace

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& params, double max_norm,
                           const AllNorms& all_norms) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> grads;
  for (const auto& param : params) {
    if (param.grad().defined()) grads.push_back(param.grad());
  }
  std::vector<at::Tensor> norms;
  if (!grads.empty()) norms = norms_of(grads);
  std::vector<at::Tensor> of_params;
  auto next = norms.begin();
  for (const auto& param : params) of_params.push_back(param.grad().defined() ? *next++ : at::Tensor());
  const auto all = all_norms(of_params);
  if (all.numel() == 0) return at::zeros({});
  const auto total = at::linalg_vector_norm(all, 2);
  if (!grads.empty()) scale_down(grads, total, max_norm);
  return total;
}

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& params, double max_norm) {
  return clip_grad_norm_(params, max_norm, [](const std::vector<at::Tensor>& own) {
    std::vector<at::Tensor> there;
    for (const auto& norm : own) {
      if (norm.defined()) there.push_back(there.empty() ? norm : norm.to(there.front().device()));
    }
    return there.empty() ? at::zeros({0}) : at::stack(there);
  });
}

}  // namespace lockstep
