#pragma once
// Tables of rows of one kind (task, model, optimizer, ...) by name. The file that defines a row adds it, in
// the program or in a shared library that it loads. The config, help and docs read rows without libtorch.

#include <any>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

/// A key that a row requires, and the hint if it is not set.
struct RowNeed {
  std::string key;   ///< the key in the row's section: "max_lr"
  std::string hint;  ///< "set schedule.max_lr, for example ten times optim.lr"
};

/// The properties of a row.
struct RowFacts {
  std::string help;                     ///< one line
  std::vector<std::string> reads = {};  ///< keys that it reads in its section; "options.NAME"; "*" = any
  std::vector<RowNeed> needs = {};      ///< the keys that must be set
  std::map<std::string, std::string> defaults =
      {};  ///< values for keys that are `default` or empty ("optim.weight_decay")
};

/// A row of a table.
struct TableRow {
  std::string kind;     ///< "optimizer"
  std::string name;     ///< the name in a config
  std::string library;  ///< the shared library that added it; empty = the program
  RowFacts facts;       ///< the row's properties
  std::any typed;       ///< the module's row type, with its factory
};

/// A row with a factory of type `Make`; the modules' macros fill it.
template <class Make>
struct RowOf {
  std::string help = {};                             ///< one line
  std::vector<std::string> reads = {};               ///< see RowFacts
  std::vector<RowNeed> needs = {};                   ///< see RowFacts
  std::map<std::string, std::string> defaults = {};  ///< see RowFacts
  std::function<Make> make = {};                     ///< the factory
};

/// The values under `optim.options`, `model.options`, ...
using RowOptions = std::map<std::string, std::string>;

/// An option as a number, boolean or string, or `otherwise` if unset. Throws InputError for a wrong type.
template <class T>
T option(const RowOptions& options, const std::string& name, T otherwise);
template <>
double option(const RowOptions& options, const std::string& name, double otherwise);
template <>
int64_t option(const RowOptions& options, const std::string& name, int64_t otherwise);
template <>
bool option(const RowOptions& options, const std::string& name, bool otherwise);
template <>
std::string option(const RowOptions& options, const std::string& name, std::string otherwise);

/// Copies a typed row into the tables.
template <class Typed>
void fill_row(void* into, Typed typed) {
  auto& row = *static_cast<TableRow*>(into);
  row.facts = {typed.help, typed.reads, typed.needs, typed.defaults};
  row.typed = std::move(typed);
}

}  // namespace lockstep

/// Adds a row to the table of its kind. The function uses plain C, so that `abi` reveals a library built for
/// another version before `fill` uses C++ types.
extern "C" void lockstep_add_row(const char* abi, const char* kind, const char* name,
                                 void (*fill)(void* row));

/// Describes what a shared library and the program must have in common. A macro, because the dynamic linker
/// would merge an inline function of both.
#define LOCKSTEP_ABI(SIZE)                                                                 \
  [] {                                                                                     \
    static char text[128];                                                                 \
    std::snprintf(text, sizeof text,                                                       \
                  "lockstep plug-in 8, libtorch " TORCH_VERSION ", settings of %zu bytes", \
                  static_cast<size_t>(SIZE));                                              \
    return static_cast<const char*>(text);                                                 \
  }()

/// Adds one row. Use the modules' macros (LOCKSTEP_MODEL, LOCKSTEP_OPTIMIZER, ...).
#define LOCKSTEP_ROW(TAG, KIND, NAME, TYPE, SIZE, ...)             \
  static void lockstep_fill_##TAG##_##NAME(void* row) {            \
    lockstep::fill_row(row, TYPE{__VA_ARGS__});                    \
  }                                                                \
  [[maybe_unused]] static const bool lockstep_row_##TAG##_##NAME = \
      (lockstep_add_row(LOCKSTEP_ABI(SIZE), KIND, #NAME, lockstep_fill_##TAG##_##NAME), true);
