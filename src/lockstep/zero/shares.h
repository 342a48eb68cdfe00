#pragma once
// Which elements of which parameter are whose: the same answer on every rank, from the sizes alone.

#include <cstddef>
#include <cstdint>
#include <vector>

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

}  // namespace lockstep::zero
