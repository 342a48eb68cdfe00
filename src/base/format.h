#pragma once
// format() for the whole house. fmt is used header-only and only std::string crosses a library's border,
// because torch ships its own fmt and the system may hold another.

#ifndef FMT_HEADER_ONLY
#define FMT_HEADER_ONLY
#endif
#include <fmt/format.h>

namespace lockstep {
using fmt::format;
}  // namespace lockstep
