#pragma once
// Which elements of which parameter are whose: the same answer on every rank, from the sizes alone.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/tree.h"

namespace lockstep::zero {

/// Elements [begin, end) of a parameter, counted as they lie in memory.
struct ParameterPiece {
  size_t param;
  int64_t begin, end;

  int64_t size() const { return end - begin; }
  bool operator==(const ParameterPiece&) const = default;
};

/// A parameter, as far as sharing it out goes.
struct Extent {
  int64_t elements;
  bool trained;  // a frozen one weighs nothing
};

/// A rank's pieces in the order of the parameters, at most one of each.
using Shares = std::vector<std::vector<ParameterPiece>>;

/// Even but for 64 elements, whatever the parameters' sizes. A cut within a parameter lies on a multiple of
/// 64 elements, so that a kernel's vectors begin and end where they do over the whole.
Shares cut_evenly(const std::vector<Extent>& params, int world);

/// Each parameter whole, the largest first to whoever has least.
Shares deal_whole(const std::vector<Extent>& params, int world);

// A piece of a parameter, of its gradient and of its state: views where there is memory to look at, and the
// way from a whole state to a piece's and back.

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
