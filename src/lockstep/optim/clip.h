#pragma once
// Gradient clipping as torch.nn.utils.clip_grad_norm_ does it, to the bit.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lockstep {

/// Scales the gradients so that their joint 2-norm is at most max_norm. Returns the norm before, a 0-d tensor
/// (not yet waited for on a GPU).
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& params, double max_norm);

/// Takes the norms of this process's gradients (undefined for a parameter without one) and returns those of
/// the whole model as a tensor of one dimension.
using NormGather = std::function<at::Tensor(const std::vector<at::Tensor>& own)>;
/// Deprecated.
using AllNorms [[deprecated("use NormGather")]] = NormGather;

/// The same if other processes hold the rest of the model.
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& params, double max_norm,
                           const NormGather& all_norms);

}  // namespace lockstep
