#pragma once
// Element-wise reduction of several ranks' buffers in rank order: the same bits however a message is cut.

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>

namespace lockstep::comm {

/// How to reduce one data type. `combine` makes out[i] = ((s0[i] op s1[i]) op s2[i]) …; out may be one of the
/// sources. half and bfloat16 are rounded after each step, as gloo does.
struct Reduction {
  size_t item_bytes = 0;
  void (*combine)(const std::byte* const* sources, size_t count, std::byte* out, size_t items) = nullptr;
  /// Averages: divides by the world size (integers toward zero); nothing for the other operations.
  void (*divide)(std::byte* data, size_t items, int world) = nullptr;
  /// As `combine`, to several places at once; any of them may be a source.
  void (*combine_into)(const std::byte* const* sources, size_t count, std::byte* const* outs,
                       size_t out_count, size_t items) = nullptr;
};

/// Throws c10::Error if c10d has no such operation for that type (an average of bools, bits of floats). With
/// `on_the_left` a later source is the left operand, out[i] = … (s2[i] op (s1[i] op s0[i])). This changes min
/// and max of 0 and -0 and of NaN.
Reduction find_reduction(c10::ScalarType type, c10d::ReduceOp::RedOpType op, bool on_the_left = false);

}  // namespace lockstep::comm
