#pragma once
// Where gloo's ring cuts a message. In which order it adds depends on the chunk, and the last bits on that.

#include <cstddef>

namespace lockstep::algorithms {

/// Items in a chunk of gloo's all-reduce. There are as many chunks as ranks; the last may be short or empty.
/// Chunk c is begun by rank c - 1, to which the ranks c - 2, c - 3, ... c (round the ring) add theirs.
std::size_t gloo_chunk(std::size_t items, std::size_t item_bytes, int world);

/// The same of gloo's reduce to one rank, which cuts long messages elsewhere.
std::size_t gloo_reduce_chunk(std::size_t items, std::size_t item_bytes, int world);

}  // namespace lockstep::algorithms
