#pragma once
// What a learner's ranks printed by themselves, shown in short beside what is not right yet.

#include <string>
#include <vector>

namespace lockstep::workshop {

/// The last lines of each rank, and where all of it is; what `said` holds already is left out, and so is
/// lockstep's own error. Empty where nothing is left. `folder` holds the ranks' logs.
std::string printed_words(const std::vector<std::string>& printed, const std::string& said,
                          const std::string& folder);

}  // namespace lockstep::workshop
