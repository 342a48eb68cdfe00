#pragma once
// The seams of layers that ranks share: what passes between them, forward and backward.

#include <ATen/core/Tensor.h>

#include <string>

#include "lockstep/parallel/team.h"

namespace lockstep {

// Each takes the same shape on every rank, is collective in both directions, and is free in a team of one.

/// Into split layers: the tensor as it is. Backward sums its gradient over the ranks.
at::Tensor copy_to_group(const at::Tensor& tensor, const Team& team);
/// Out of split layers: the sum over the ranks. Backward hands the gradient on as it is.
at::Tensor reduce_from_group(const at::Tensor& tensor, const Team& team);
/// This rank's part of a tensor that all have. Backward puts the parts of the gradient together.
at::Tensor split_to_group(const at::Tensor& tensor, const Team& team, int64_t dim);
/// The ranks' parts put together, for what all ranks do alike. Backward takes this rank's part.
at::Tensor gather_from_group(const at::Tensor& tensor, const Team& team, int64_t dim);
/// The ranks' parts put together, into split layers. Backward sums over the ranks and takes this one's part.
at::Tensor gather_to_group(const at::Tensor& tensor, const Team& team, int64_t dim);
/// Out of split layers: this rank's part of the sum. Backward puts the parts of the gradient together.
at::Tensor reduce_scatter_from_group(const at::Tensor& tensor, const Team& team, int64_t dim);

/// A rank's share of `count` things, evenly. InputError where that is no whole number of them; `what` names
/// them: "outputs of a linear layer".
int64_t share_of(int64_t count, const Team& team, const std::string& what);

}  // namespace lockstep
