#pragma once
// Which rank owns which elements of a parameter: computed from the sizes, the same on every rank.

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

/// A parameter's size.
struct Extent {
  int64_t elements;
  bool trained;  // a frozen one does not count
};

/// A rank's pieces in the order of the parameters, at most one of each.
using Shares = std::vector<std::vector<ParameterPiece>>;

/// Equal shares up to 64 elements, whatever the parameters' sizes. A cut within a parameter is at a multiple
/// of 64 elements, so that a kernel's vectors begin and end where they do for the whole parameter.
Shares cut_evenly(const std::vector<Extent>& params, int world);

/// A view of a dense tensor's elements in memory order.
at::Tensor flat(const at::Tensor& tensor);

/// The view of a parameter that an optimizer gets: the whole parameter, or a row of its elements.
at::Tensor piece_of(const at::Tensor& param, const ParameterPiece& piece);

/// The gradient of that piece; a copy if its layout differs from the parameter's.
at::Tensor gradient_of(const at::Tensor& param, const ParameterPiece& piece);

/// A piece's entry of a state: tensors of the parameter's size are cut, the rest (Adam's step) is kept.
Tree cut_state(const at::Tensor& param, const ParameterPiece& piece, const Tree& whole);

/// The whole entry from all pieces' entries; on the CPU.
Tree join_states(const at::Tensor& param, const std::vector<std::pair<ParameterPiece, Tree>>& parts);

}  // namespace lockstep::zero
