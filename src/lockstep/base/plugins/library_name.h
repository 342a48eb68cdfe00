#pragma once
// The name of a row that a shared library brings, as a config says it: PATH, or PATH.so:ROW.

#include <string>

namespace lockstep::base {

struct LibraryName {
  std::string path;  // where it is found, absolute
  std::string row;   // empty = the library's only one
};

LibraryName library_name(const std::string& name);

/// To load a library is to run what its maker wrote. InputError, which says that `doing` does not, where it
/// is neither this user's nor root's.
void require_own_library(const std::string& path, const std::string& doing);

}  // namespace lockstep::base
