#include "lockstep/text/truncate.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::text {
namespace {

// The longer one gives until both are of one length; then they share, and an odd token is the longer one's.
Lengths longest_first(Lengths lengths, size_t room) {
  const bool swapped = lengths.first > lengths.second;
  const size_t shorter = std::min(lengths.first, lengths.second);
  Lengths kept{shorter, shorter > room ? shorter : std::max(shorter, room - shorter)};
  if (kept.first + kept.second > room) kept = {room / 2, room / 2 + room % 2};
  if (swapped) std::swap(kept.first, kept.second);
  return kept;
}

// What the other one leaves, where it leaves anything.
size_t beside(size_t other, size_t room, const char* which) {
  if (other < room) return room - other;
  throw InputError(
      format("the {} text has {} tokens and stays whole, where {} are all that may be", which, other, room),
      "truncation of the other text alone",
      "allow more tokens, or cut the longer text first (longest_first)");
}

}  // namespace

Lengths truncated(Lengths lengths, bool pair, size_t room, Truncation truncation) {
  const size_t all = lengths.first + lengths.second;
  if (truncation == Truncation::kNone || all <= room) return lengths;
  if (room == 0) return {};
  switch (truncation) {
    case Truncation::kOnlyFirst:
      return {beside(lengths.second, room, "second"), lengths.second};
    case Truncation::kOnlySecond:
      if (!pair)
        throw InputError("there is no second text that could be cut", "a text alone",
                         "cut the first (only_first)");
      return {lengths.first, beside(lengths.first, room, "first")};
    default:
      return pair ? longest_first(lengths, room) : Lengths{room, 0};
  }
}

}  // namespace lockstep::text
