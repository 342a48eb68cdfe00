#pragma once
// What the LAB_* variables ask for.

namespace pretended {

/// The whole number in a variable; `otherwise` where it is unset or empty. Other text ends the process.
long number(const char* variable, long otherwise);
/// Whether a failure that was asked for is this process's: LAB_FAIL_RANK names its rank. Where that is not
/// set, every rank's (-1) or the rank's of `otherwise`.
bool fails_here(long otherwise);

}  // namespace pretended
