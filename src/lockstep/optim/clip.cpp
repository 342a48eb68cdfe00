#include "lockstep/optim/clip.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

namespace lockstep {

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& params, double max_norm) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> grads;
  for (const auto& param : params) {
    if (param.grad().defined()) grads.push_back(param.grad());
  }
  if (grads.empty()) return at::zeros({});
  const auto on_gpu =
      std::all_of(grads.begin(), grads.end(), [](const at::Tensor& grad) { return grad.is_cuda(); });
  std::vector<at::Tensor> norms;
  if (on_gpu) {
    norms = at::_foreach_norm(grads, 2);
  } else {
    for (const auto& grad : grads) norms.push_back(at::linalg_vector_norm(grad, 2));
  }
  const auto total = at::linalg_vector_norm(at::stack(norms), 2);
  // Multiplying by 1 where nothing is clipped spares the wait for the norm, and is what Python does.
  const auto factor = at::clamp_max((total + 1e-6).reciprocal() * max_norm, 1.0);
  if (on_gpu) {
    at::_foreach_mul_(grads, factor);
  } else {
    for (auto& grad : grads) grad.mul_(factor);
  }
  return total;
}

}  // namespace lockstep
