#pragma once
// Where a judge tells hangs in words of its own, whatever else goes wrong keeps the general ones.

#include <string>

#include "course/workshop/judge.h"

namespace lockstep::workshop {

/// NotYet, in the general words, where a rank crashed, or failed and met no other rank in a collective.
void require_no_own_failure(const Run& run, const std::string& folder);

}  // namespace lockstep::workshop
