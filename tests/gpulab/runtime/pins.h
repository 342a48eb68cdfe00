#pragma once
// The page-locked memory of the host, which streams read and write when they get there.

#include <cstddef>

namespace pretended {

void pin(const void* pointer, size_t bytes);
/// False for what is not the beginning of a pinned range.
bool unpin(const void* pointer);

}  // namespace pretended
