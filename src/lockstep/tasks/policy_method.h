#pragma once
// How a policy learns from what it did: PPO (Schulman et al., arXiv:1707.06347), or the plain policy gradient
// with a baseline (Williams, 1992). A sample's target is packed: see Packed.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/base/table.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {

/// `task.options`; what `method` does not say otherwise is PPO's.
struct PolicyMethod {
  bool clips = true;          // PPO
  int64_t environments = 16;  // of a rank
  int64_t steps = 128;        // of each, a round
  int64_t passes = 4;         // over a round's samples; plain: 1
  double gamma = 0.99;        // what a reward is worth one step later
  double lambda = 0.95;       // of the advantages; plain: 1
  double clip = 0.2;
  double entropy = 0.01;  // its weight in the loss
  double value = 0.5;     // the baseline's
  double solved = 475;    // mean reward over 100 episodes; 0 = goes on
};

/// InputError for nonsense.
PolicyMethod policy_method(const RowOptions& options);

/// The columns of a target.
struct Packed {
  enum Column : int64_t { action, advantage, value, log_probability, columns };
};

/// `output`: a logit an action, and the value last.
at::Tensor policy_loss(const PolicyMethod& method, const at::Tensor& output, const at::Tensor& target,
                       at::Reduction::Reduction reduction);

}  // namespace lockstep::tasks
