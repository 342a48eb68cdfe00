#pragma once
// Names in shared memory that no kill leaves for good: their maker holds them locked, and whoever makes the
// next one sweeps away what nobody holds. A lock outlives no process and knows no reused pid.

#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::base {

/// "lockstep-NAME.shared", the only form that is swept.
std::string claimed_name(const std::string& name);

/// Locks the file, which was made under such a name just now, for as long as it stays open. False where a
/// sweep was quicker: make another.
bool claim(const Descriptor& file);

/// Removes this user's file if nobody holds it. Names of that form are removed by who holds them, and by this
/// alone.
void remove_unclaimed(const std::string& path);

/// Removes this user's files of that form in `folder` that nobody holds.
void sweep_unclaimed(const std::string& folder);

}  // namespace lockstep::base
