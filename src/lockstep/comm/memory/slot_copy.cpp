#include "lockstep/comm/memory/slot_copy.h"

#include <algorithm>
#include <cstring>

namespace lockstep::comm {

void copy_in_pieces(const std::byte* from, std::byte* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPiece) std::memcpy(to + at, from + at, std::min(kPiece, bytes - at));
}

void copy_into_slot(std::byte* slot, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPiece) {
    const size_t now = std::min(kPiece, bytes - at), next = at + now;
    fetch_to_write(slot + next, std::min(kPiece, bytes - next));
    std::memcpy(slot + at, from + at, now);
  }
}

}  // namespace lockstep::comm
