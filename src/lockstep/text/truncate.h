#pragma once
// How many tokens of each text stay where there are too many.

#include <cstddef>

#include "lockstep/text/encoding.h"

namespace lockstep::text {

struct Lengths {
  size_t first = 0, second = 0;
};

/// The lengths that leave `room` tokens at most. InputError where the text that may be cut is too short for
/// it, or is a second one that is not there.
Lengths truncated(Lengths lengths, bool pair, size_t room, Truncation truncation);

}  // namespace lockstep::text
