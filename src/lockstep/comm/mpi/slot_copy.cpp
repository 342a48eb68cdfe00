#include "lockstep/comm/mpi/slot_copy.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <cstdint>
#include <cstring>

namespace lockstep::comm {
namespace {

#if defined(__x86_64__)

constexpr size_t kLine = 64;

void stream_line(std::byte* to, const std::byte* from) {
  for (size_t at = 0; at < kLine; at += sizeof(__m128i)) {
    const auto value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), value);
  }
}

#endif

}  // namespace

void copy_into_slot(std::byte* slot, const std::byte* from, size_t bytes) {
#if defined(__x86_64__)
  const size_t before = (kLine - reinterpret_cast<uintptr_t>(slot) % kLine) % kLine;
  if (bytes >= kLeastPastCaches) {
    std::memcpy(slot, from, before);
    size_t at = before;
    for (; at + kLine <= bytes; at += kLine) stream_line(slot + at, from + at);
    std::memcpy(slot + at, from + at, bytes - at);
    _mm_sfence();  // such stores keep no order by themselves
    return;
  }
#endif
  std::memcpy(slot, from, bytes);
}

}  // namespace lockstep::comm
