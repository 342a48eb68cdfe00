#pragma once
// What the LAB_* variables ask for.

namespace pretended {

/// The whole number in a variable; `otherwise` where it is unset or empty. Other text ends the process.
long number(const char* variable, long otherwise);
/// Whether a failure that was asked for is this process's: LAB_FAIL_RANK (0) names its rank.
bool fails_here();

}  // namespace pretended
