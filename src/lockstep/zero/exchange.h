#pragma once
// What the ranks tell each other in each step: the elements that each has updated.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/parallel/team.h"
#include "lockstep/zero/shares.h"

namespace lockstep::zero {

/// Every trained parameter as its owners have it. Collective.
void exchange_updates(const Team& team, const Shares& shares, const std::vector<at::Tensor>& params);

}  // namespace lockstep::zero
