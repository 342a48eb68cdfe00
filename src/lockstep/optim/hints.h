#pragma once
// What to do about a value that an optimiser does not take.

namespace lockstep {

inline constexpr const char* kNotNegative = "give a number that is 0 or more";

}  // namespace lockstep
