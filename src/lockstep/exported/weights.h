#pragma once
// The tensors of an exported file.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "lockstep/checkpoint/rebuild.h"
#include "lockstep/exported/field.h"

namespace lockstep::exported {

/// By name; names of one piece of one record are one tensor. Parameters want gradients where Python's did.
using Weights = std::map<std::string, at::Tensor>;

/// What the file says of a tensor's place in its record. Refusal for one that is not dense.
checkpoint::TensorClaim claim_of(const Json& meta);

/// Parameters and buffers.
Weights read_weights(const Archive& archive);
/// Constants, and buffers that no state_dict holds.
Weights read_constants(const Archive& archive);

}  // namespace lockstep::exported
