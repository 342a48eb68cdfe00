#pragma once
// The tensors of an exported file.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/tree.h"
#include "lockstep/exported/archive.h"

namespace lockstep::exported {

/// By name; names of one piece of one record are one tensor. Parameters want gradients where Python's did.
using Weights = std::map<std::string, at::Tensor>;

/// What the file says of a tensor's place in its record. Refusal for one that is not dense.
checkpoint::TensorClaim claim_of(const Json& meta);

/// Parameters and buffers.
Weights read_weights(const Archive& archive);
/// Constants, and buffers that no state_dict holds.
Weights read_constants(const Archive& archive);

// A copy of an exported file with other weights in it.

/// InputError, before the work, where `original` is no exported model, or rewrite_weights() could not write
/// `path`: the original itself, a folder, a pipe or a device in the file's place, or no folder for it. The
/// latter end in `hint`.
void check_rewrite(const std::string& original, const std::string& path, const std::string& hint);

/// Writes `original` to `path` with the tensors of `state_dict` in place of its own and all else as it is,
/// whole or not at all. InputError where the original is damaged, or names, shapes or dtypes differ; `given`:
/// what errors call the state_dict's file, the original unless said.
void rewrite_weights(const std::string& original, const Tree& state_dict, const std::string& path,
                     const std::string& given = {});

}  // namespace lockstep::exported
