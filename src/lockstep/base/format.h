#pragma once
// format() for the whole house: fmt's syntax, checked while compiling, with fmt's machinery compiled once, in
// format.cpp. Header-only fmt costs each file 3 s.

#if __has_include(<fmt/base.h>)
#include <fmt/base.h>
#else
#include <fmt/core.h>
#endif

#include <string>

namespace lockstep {

/// What format() calls: the same without the check while compiling.
std::string vformat(fmt::string_view text, fmt::format_args args);

/// format("{} of {}", 1, 2); numbers, texts, booleans and pointers.
template <class... Args>
std::string format(fmt::format_string<Args...> text, Args&&... args) {
  return lockstep::vformat(text, fmt::make_format_args(args...));
}

}  // namespace lockstep
