#pragma once
// Values of environment variables. Errors name the variable.

#include <optional>

#include "lockstep/launch/identify.h"

namespace lockstep::launch {

/// False for nullptr: a launcher may not have the variable.
bool is_set(const Environment& environment, const char* name);

/// The variable's text, or "" if it is not set.
std::string text_of(const Environment& environment, const char* name);

/// "NAME=value", as reasons and errors quote it.
std::string quote(const Environment& environment, const char* name);

/// A whole number from `least` to 2147483647, or nullopt if it is not set; anything else is an InputError.
std::optional<int> number_of(const Environment& environment, const char* name, int least = 0);

/// The same from 1 on.
std::optional<int> count_of(const Environment& environment, const char* name);

}  // namespace lockstep::launch
