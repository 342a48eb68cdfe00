#pragma once
// The chunks of gloo's ring. The order of additions, and with it the last bits, depends on the chunk.

#include <cstddef>

namespace lockstep::algorithms {

/// The items in a chunk of gloo's all-reduce. There are as many chunks as ranks; the last may be short or
/// empty. Chunk c begins with rank c - 1, to which the ranks c - 2, c - 3, ... c (round the ring) add theirs.
std::size_t gloo_chunk(std::size_t items, std::size_t item_bytes, int world);

/// The same for gloo's reduce to one rank, which cuts long messages at other places.
std::size_t gloo_reduce_chunk(std::size_t items, std::size_t item_bytes, int world);

}  // namespace lockstep::algorithms
