#pragma once
// Open tables: rows of one kind (task, model, optimiser, ...) by name, each added by the file that defines
// it, in the program or in a shared library that it loads. What the config, the help and the docs ask needs
// no libtorch.

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

/// A key that a row cannot do without, and what to do where it is not set.
struct RowNeed {
  std::string key;   ///< of the row's section: "max_lr"
  std::string hint;  ///< "set schedule.max_lr, ten times optim.lr say"
};

/// What a row says of itself before anything is made.
struct RowFacts {
  std::string help;                     ///< one line
  std::vector<std::string> reads = {};  ///< keys of its section; "options.NAME"; "*" = whatever it likes
  std::vector<RowNeed> needs = {};      ///< of those, the ones that must be set
  std::map<std::string, std::string> defaults =
      {};  ///< what `default` or an empty text of a key ("optim.weight_decay") means
};

/// A row as the tables hold it.
struct TableRow {
  std::string kind;     ///< "optimiser"
  std::string name;     ///< as a config names it
  std::string library;  ///< the shared library that brought it; empty = the program's own
  RowFacts facts;       ///< what it says of itself
  std::any typed;       ///< the row as its module knows it, with what makes the thing
};

/// A row of a table whose things `Make` makes: the macros of the modules fill it.
template <class Make>
struct RowOf {
  std::string help = {};                             ///< one line
  std::vector<std::string> reads = {};               ///< see RowFacts
  std::vector<RowNeed> needs = {};                   ///< see RowFacts
  std::map<std::string, std::string> defaults = {};  ///< see RowFacts
  std::function<Make> make = {};                     ///< makes the thing
};

/// The texts under `optim.options`, `model.options`, ...: keys of a row's own.
using RowOptions = std::map<std::string, std::string>;

/// One of them as a number, a truth value or a text; `otherwise` where it is not set. InputError for what is
/// none.
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

/// Hands a typed row over to the tables.
template <class Typed>
void fill_row(void* into, Typed typed) {
  auto& row = *static_cast<TableRow*>(into);
  row.facts = {typed.help, typed.reads, typed.needs, typed.defaults};
  row.typed = std::move(typed);
}

}  // namespace lockstep

/// Adds a row to the table of its kind. Plain C, so that a library built for another lockstep is told apart
/// by its `abi` before `fill`, which knows C++ types, is called.
extern "C" void lockstep_add_row(const char* abi, const char* kind, const char* name,
                                 void (*fill)(void* row));

/// What a shared library must agree on with the program that loads it. A macro, for each side must say what
/// it was compiled with: an inline function of both would be merged into one by the dynamic linker.
#define LOCKSTEP_ABI(SIZE)                                                                 \
  [] {                                                                                     \
    static char text[128];                                                                 \
    std::snprintf(text, sizeof text,                                                       \
                  "lockstep plug-in 7, libtorch " TORCH_VERSION ", settings of %zu bytes", \
                  static_cast<size_t>(SIZE));                                              \
    return static_cast<const char*>(text);                                                 \
  }()

/// One row: the modules' own macros (LOCKSTEP_MODEL, LOCKSTEP_OPTIMIZER, ...) say all but the name and the
/// fields.
#define LOCKSTEP_ROW(TAG, KIND, NAME, TYPE, SIZE, ...)             \
  static void lockstep_fill_##TAG##_##NAME(void* row) {            \
    lockstep::fill_row(row, TYPE{__VA_ARGS__});                    \
  }                                                                \
  [[maybe_unused]] static const bool lockstep_row_##TAG##_##NAME = \
      (lockstep_add_row(LOCKSTEP_ABI(SIZE), KIND, #NAME, lockstep_fill_##TAG##_##NAME), true);
