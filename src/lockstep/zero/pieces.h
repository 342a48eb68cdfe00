#pragma once
// A piece of a parameter, of its gradient and of its state: views where there is memory to look at, and the
// way from a whole state to a piece's and back.

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/zero/shares.h"

namespace lockstep::zero {

/// A dense tensor's elements in a row, as they lie in memory; shares it.
at::Tensor flat(const at::Tensor& tensor);

/// What an optimiser sees of a parameter: all of it in its own shape, or some of its elements in a row.
at::Tensor piece_of(const at::Tensor& param, const ParameterPiece& piece);

/// The gradient of that piece. A copy where the gradient does not lie in memory as the parameter does.
at::Tensor gradient_of(const at::Tensor& param, const ParameterPiece& piece);

/// A piece's entry of a state: what is as large as the parameter is cut, the rest (Adam's step) is taken as
/// it is.
Tree cut_state(const at::Tensor& param, const ParameterPiece& piece, const Tree& whole);

/// The whole from all pieces' entries; on the CPU.
Tree join_states(const at::Tensor& param, const std::vector<std::pair<ParameterPiece, Tree>>& parts);

}  // namespace lockstep::zero
