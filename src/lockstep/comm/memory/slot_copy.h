#pragma once
// Copies into memory that another core wrote or read last.

#include <cstddef>

namespace lockstep::comm {

/// What is fetched while as much before it is worked on. glibc copies more at once by an instruction that
/// takes a quarter longer on AMD.
constexpr size_t kPiece = 2048;

/// Asks for cache lines that will be written. A store into a line that another core has waits for it, and a
/// store after a load waits twice: between cores far apart that takes several times as long as this.
inline void fetch_to_write([[maybe_unused]] const std::byte* at, [[maybe_unused]] size_t bytes) {
#if defined(__x86_64__)
  constexpr size_t kLine = 64;
  for (size_t i = 0; i < bytes; i += kLine) asm volatile("prefetchw %0" : : "m"(at[i]));
#endif
}

/// As memcpy.
void copy_in_pieces(const std::byte* from, std::byte* to, size_t bytes);
/// The same, where another core has the lines of `slot`.
void copy_into_slot(std::byte* slot, const std::byte* from, size_t bytes);

}  // namespace lockstep::comm
