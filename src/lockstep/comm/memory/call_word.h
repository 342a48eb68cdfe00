#pragma once
// What a rank is about to do, in three words: ranks compare them before they touch each other's
// numbers.

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <string>

#include "lockstep/comm/watch/calls.h"

namespace lockstep::comm {

struct CallWord {
  uint64_t what = 0;  // operation, reduction, type and root
  uint64_t bytes = 0;
  uint64_t parts = 0;  // of several tensors: a digest of their types and sizes

  bool operator==(const CallWord&) const = default;
};

/// `reduction` and `root` are -1 where the operation has none.
CallWord word_of(c10d::OpType type, int reduction, int root, c10::ScalarType scalar, size_t bytes);
/// "all-reduce (sum) of 40 bytes of Float"
std::string in_words(const CallWord& word);

/// Thrown out of a collective in which another rank does something else.
struct UnlikeCalls {
  int rank;  // the other, of the group
  CallWord theirs;
};
/// Both in the same words, whichever of the two finds it.
Difference difference_to(const UnlikeCalls& unlike, int rank, const CallWord& own);

}  // namespace lockstep::comm
