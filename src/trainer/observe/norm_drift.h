#pragma once
// Batch normalisation that each rank does over its own samples: how far the ranks' running statistics lie
// apart.

#include <string>

#include <torch/nn/module.h>

#include "lockstep/parallel/team.h"

namespace lockstep::train {

/// Where they differ most, in words with what to do; empty where they are the same, or there are none.
/// Collective where the module has any.
std::string norm_drift(const Team& team, const torch::nn::Module& module);

}  // namespace lockstep::train
