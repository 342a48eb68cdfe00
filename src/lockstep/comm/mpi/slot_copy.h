#pragma once
// Copies into memory that another process read last.

#include <cstddef>

namespace lockstep::comm {

/// From so many bytes on a copy goes past the caches; what is less is read sooner out of one.
constexpr size_t kLeastPastCaches = 4096;

/// As memcpy. A store into a cache line of which another core has a
/// copy waits until that is gone, on some machines for longer than the line's way through memory takes. Done
/// for others to see, as far as a release that follows is.
void copy_into_slot(std::byte* slot, const std::byte* from, size_t bytes);

}  // namespace lockstep::comm
