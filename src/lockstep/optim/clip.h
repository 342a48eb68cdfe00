#pragma once
// Gradient clipping like torch.nn.utils.clip_grad_norm_, with the same results, bit for bit.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lockstep {

/// Scales the gradients so that their joint 2-norm is at most max_norm. Returns the previous norm as a 0-d
/// tensor. On a GPU, the call does not synchronize.
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& params, double max_norm);

/// Takes the norms of this process's gradients (undefined for a parameter without one) and returns those of
/// the whole model as a tensor of one dimension.
using NormGather = std::function<at::Tensor(const std::vector<at::Tensor>& own)>;
/// Deprecated.
using AllNorms [[deprecated("use NormGather")]] = NormGather;

/// The same if other processes have the rest of the model.
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& params, double max_norm,
                           const NormGather& all_norms);

}  // namespace lockstep
