#pragma once
// The open tables as the modules ask them: rows by name, and shared libraries that bring more.

#include <string>
#include <vector>

#include "lockstep/base/table.h"

namespace lockstep::base {

/// The rows of a kind, in the order of their names, whatever order they were linked in.
std::vector<const TableRow*> rows_of(const std::string& kind);
std::vector<std::string> names_of(const std::string& kind);

/// Is it the path of a shared library, alone (a '/' in it, or .so at its end) or with a row's name:
/// PATH.so:NAME?
bool names_library(const std::string& name);

/// The row of that name, or the one of a library that has been loaded; nullptr where there is none.
const TableRow* find_row(const std::string& kind, const std::string& name);

/// The row that the library brings; loads it, once. InputError where the file is missing, no library, built
/// for another lockstep, or holds no row of this kind, or several of them and no name says which.
const TableRow& load_row(const std::string& kind, const std::string& name);

/// find_row(), or load_row() for a library. InputError, at `key`, for a name that is in no table.
const TableRow& require_row(const std::string& kind, const std::string& name, const std::string& key);

/// require_row() as its module knows it.
template <class Typed>
const Typed& require(const std::string& kind, const std::string& name, const std::string& key) {
  return std::any_cast<const Typed&>(require_row(kind, name, key).typed);
}

/// Throws: the maker of that row, named at `key`, gave nothing.
[[noreturn]] void made_nothing(const std::string& kind, const std::string& name, const std::string& key);

/// What a row's maker gave. Error where that is nothing: makers are others' code.
template <class Pointer>
Pointer made(Pointer thing, const std::string& kind, const std::string& name, const std::string& key) {
  if (!thing) made_nothing(kind, name, key);
  return thing;
}

// The name of a row that a shared library brings, as a config says it: PATH, or PATH.so:ROW.

struct LibraryName {
  std::string path;  // where it is found, absolute
  std::string row;   // empty = the library's only one
};

LibraryName library_name(const std::string& name);

/// To load a library is to run what its maker wrote. InputError, which says that `doing` does not, where it
/// is neither this user's nor root's.
void require_own_library(const std::string& path, const std::string& doing);

}  // namespace lockstep::base
