#pragma once
// In which order a stage of a pipeline takes the micro-batches of a batch, forward and backward.

#include <cstdint>
#include <vector>

namespace lockstep {

/// A stage's next piece of work.
struct Turn {
  bool forward;         ///< else backward
  int64_t micro_batch;  ///< from 0

  bool operator==(const Turn&) const = default;
};

/// One forward, one backward (PipeDream-Flush; Narayanan et al., arXiv:2006.09503): after a warm-up of as
/// many forwards as there are stages behind, each further forward is followed by a backward, so that a stage
/// keeps at most `stages - stage` micro-batches alive.
std::vector<Turn> one_f_one_b(int stages, int stage, int64_t micro_batches);

/// All forwards, then all backwards (GPipe; Huang et al., arXiv:1811.06965): the same bubble, and every
/// micro-batch is alive at once. For comparison.
std::vector<Turn> gpipe(int64_t micro_batches);

/// The share of its time that a stage waits where every turn costs the same on every stage: (p-1)/(m+p-1).
double bubble_share(int stages, int64_t micro_batches);

}  // namespace lockstep
