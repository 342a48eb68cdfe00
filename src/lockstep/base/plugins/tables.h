#pragma once
// Lookup in the open tables: rows by name, and shared libraries that add rows.

#include <string>
#include <vector>

#include "lockstep/base/table.h"

namespace lockstep::base {

/// The rows of a kind, sorted by name.
std::vector<const TableRow*> rows_of(const std::string& kind);
std::vector<std::string> names_of(const std::string& kind);

/// Whether it is the path of a shared library (it contains '/' or ends in .so), or PATH.so:ROW.
bool names_library(const std::string& name);

/// The row of that name, also from a loaded library; nullptr if there is none.
const TableRow* find_row(const std::string& kind, const std::string& name);

/// The row from a library, which is loaded once. InputError if the file is missing, is not a library, was
/// built for another lockstep, or does not have exactly one such row.
const TableRow& load_row(const std::string& kind, const std::string& name);

/// find_row(), or load_row() for a library. InputError at `key` for an unknown name.
const TableRow& require_row(const std::string& kind, const std::string& name, const std::string& key);

/// The typed row of require_row().
template <class Typed>
const Typed& require(const std::string& kind, const std::string& name, const std::string& key) {
  return std::any_cast<const Typed&>(require_row(kind, name, key).typed);
}

/// Throws an Error: the factory of the row at `key` returned nothing.
[[noreturn]] void refuse_null(const std::string& kind, const std::string& name, const std::string& key);

/// The result of a row's factory; an Error if it is null.
template <class Pointer>
Pointer made(Pointer thing, const std::string& kind, const std::string& name, const std::string& key) {
  if (!thing) refuse_null(kind, name, key);
  return thing;
}

/// A row of a shared library, as a config names it: PATH, or PATH.so:ROW.
struct LibraryName {
  std::string path;  // absolute
  std::string row;   // empty = the library's only row
};

LibraryName library_name(const std::string& name);

/// InputError if the library belongs neither to this user nor to root, because loading a library runs its
/// code. `doing` names the command.
void require_own_library(const std::string& path, const std::string& doing);

}  // namespace lockstep::base
