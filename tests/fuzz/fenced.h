#pragma once
// Memory for tensors in which reading or writing past the end of one ends the process.

#include <cstddef>

namespace lockstep::fuzz {

/// From now on the tensors of this process lie each before a page that nobody may touch, and after one; all
/// of them together take so many bytes at most. Whoever asks for more gets a c10::Error.
void fence_tensors(size_t most_bytes);

}  // namespace lockstep::fuzz
