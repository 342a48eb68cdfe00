#pragma once
// In which order the ranks' numbers become one, place by place of a message.

#include <cstddef>

namespace lockstep::comm {

/// The ranks here are numbered within their node.
class Fold {
 public:
  /// Rank 0, rank 1, ...: the bits do not depend on how a message is cut.
  static Fold by_rank(size_t ranks) { return {ranks, 0}; }
  /// The order of gloo's ring, whose chunks have so many bytes (algorithms/gloo_chunks.h).
  static Fold as_gloo(size_t ranks, size_t chunk_bytes) { return {ranks, chunk_bytes}; }

  /// Where the order changes next after byte `at`.
  size_t end_of(size_t at) const { return chunk_ == 0 ? ~size_t{0} : (at / chunk_ + 1) * chunk_; }
  /// The rank that begins at byte `at`.
  size_t first(size_t at) const { return chunk_ == 0 ? 0 : (at / chunk_ + ranks_ - 1) % ranks_; }
  /// The one that comes after it.
  size_t next(size_t rank) const {
    if (chunk_ == 0) return rank + 1;
    return rank == 0 ? ranks_ - 1 : rank - 1;
  }

 private:
  Fold(size_t ranks, size_t chunk) : ranks_(ranks), chunk_(chunk) {}

  size_t ranks_;
  size_t chunk_;  // 0: by rank
};

}  // namespace lockstep::comm
