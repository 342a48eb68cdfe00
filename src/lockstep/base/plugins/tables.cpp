#include "lockstep/base/plugins/tables.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/table.h"
#include "lockstep/base/text.h"

namespace lockstep::base {
namespace {

// With a slash, or dlopen would search the system's library folders instead.
std::string absolute(const std::string& path) {
  return std::filesystem::absolute(find_path(path)).lexically_normal();
}

}  // namespace

LibraryName library_name(const std::string& name) {
  const size_t at = name.rfind(".so:");
  if (at == std::string::npos) return {absolute(name), ""};
  return {absolute(name.substr(0, at + 3)), name.substr(at + 4)};
}

void require_own_library(const std::string& path, const std::string& doing) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0 || facts.st_uid == ::geteuid() || facts.st_uid == 0) return;
  throw InputError(format("{} loads no library that belongs to another user (uid {}): that would run it",
                          doing, facts.st_uid),
                   path, "where you trust it, copy it to a folder of your own, and name that one");
}

}  // namespace lockstep::base

namespace lockstep {

// The keys of a row's own, from text.

namespace {

const std::string* find(const RowOptions& options, const std::string& name) {
  const auto found = options.find(name);
  return found == options.end() ? nullptr : &found->second;
}

[[noreturn]] void refuse_option(const std::string& name, const std::string& text, const char* wanted) {
  throw InputError(format("options.{} must be {}, not '{}'", name, wanted, base::printable(text)),
                   "options." + name, "change it in the config");
}

template <class Number>
Number number(const RowOptions& options, const std::string& name, Number otherwise, const char* wanted) {
  const auto* text = find(options, name);
  if (!text) return otherwise;
  Number value{};
  const char* end = text->data() + text->size();
  const auto [at, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || at != end) refuse_option(name, *text, wanted);
  return value;
}

}  // namespace

template <>
double option(const RowOptions& options, const std::string& name, double otherwise) {
  return number(options, name, otherwise, "a number");
}

template <>
int64_t option(const RowOptions& options, const std::string& name, int64_t otherwise) {
  return number(options, name, otherwise, "a whole number");
}

template <>
bool option(const RowOptions& options, const std::string& name, bool otherwise) {
  const auto* text = find(options, name);
  if (!text) return otherwise;
  if (*text != "true" && *text != "false") refuse_option(name, *text, "true or false");
  return *text == "true";
}

template <>
std::string option(const RowOptions& options, const std::string& name, std::string otherwise) {
  const auto* text = find(options, name);
  return text ? *text : otherwise;
}

}  // namespace lockstep

// The open tables, and the shared libraries that bring them rows.

namespace lockstep::base {
namespace {

constexpr const char* kHow = "docs/how-to/extending.md shows how to build one";

using Fill = void (*)(void*);

// A row that a library announced while it was loaded: nothing of it is touched before its abi is known.
struct Announced {
  std::string abi, kind, name;
  Fill fill;
};

struct Tables {
  std::map<std::pair<std::string, std::string>, TableRow> rows;  // by kind and name
  std::map<std::string, std::string> abis;                       // the program's own, by kind
  std::map<std::string, std::string> libraries;  // by absolute path: the path it was loaded by
  std::map<void*, std::string> handles;
  std::vector<Announced>* loading = nullptr;
};

// For good, as the libraries stay: what they made may be destroyed later than any static.
Tables& tables() {
  static auto* all = new Tables;
  return *all;
}

void add(const std::string& kind, const std::string& name, const std::string& library, Fill fill) {
  const auto [at, added] = tables().rows.try_emplace({kind, name});
  TableRow& row = at->second;
  if (!added) {
    throw InputError(format("there are two {}s called '{}': one is {}", kind, name,
                            row.library.empty() ? "built in" : "of " + row.library),
                     library.empty() ? "the program" : library, "give one of them another name");
  }
  row = {kind, name, library, {}, {}};
  fill(&row);
}

[[noreturn]] void refuse_abi(const std::string& kind, const std::string& theirs, const std::string& path) {
  throw InputError(format("the {} was built for another lockstep: for '{}', this is '{}'", kind,
                          printable(theirs), tables().abis[kind]),
                   path, "build it again with this lockstep's headers");
}

// Libraries from before there were tables held one task each, and said so.
void refuse_old(void* handle, const std::string& path) {
  if (void* found = dlsym(handle, "lockstep_task_abi"))
    refuse_abi("task", reinterpret_cast<const char* (*)()>(found)(), path);
}

// A copy that is cut off, or still under way, would end the process inside dlopen, by a bus error. The table
// of sections is what a linker writes last.
void refuse_cut_off(const RegularFile& file, const std::string& kind, const std::string& path) {
  Elf64_Ehdr header{};
  const bool is_whole = file.read_at(0, &header, sizeof header) == sizeof header;
  if (!is_whole || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return;  // dlopen says what it is
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return;
  const uint64_t sections = uint64_t{header.e_shnum} * header.e_shentsize;
  if (header.e_shoff <= file.size() && sections <= file.size() - header.e_shoff) return;
  throw InputError(format("cannot load the {}: its shared library is cut off", kind), path,
                   "copy or build it again");
}

// dlopen as it is; announced rows are what its initialisers added.
void* open_library(const std::string& path, const std::string& kind, std::vector<Announced>& announced) {
  refuse_cut_off(RegularFile(path, format("the {}'s shared library", kind), kHow), kind, path);
  tables().loading = &announced;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  tables().loading = nullptr;
  if (!handle) throw InputError(format("cannot load the {}: {}", kind, dlerror()), path, kHow);
  return handle;
}

void take(const std::vector<Announced>& announced, const std::string& path) {
  for (const auto& row : announced) {
    if (row.abi != tables().abis[row.kind]) refuse_abi(row.kind, row.abi, path);
  }
  for (const auto& row : announced) add(row.kind, row.name, path, row.fill);
}

// The path by which the library's rows are known. It stays loaded for good: their code, and what they made,
// live in it.
std::string load(const std::string& path, const std::string& kind) {
  auto& known = tables();
  if (const auto found = known.libraries.find(path); found != known.libraries.end()) return found->second;
  std::vector<Announced> announced;
  void* handle = open_library(path, kind, announced);
  const auto [at, is_new] = known.handles.emplace(handle, path);
  if (is_new) {
    try {
      refuse_old(handle, path);
      take(announced, path);
    } catch (...) {
      std::erase_if(known.rows, [&](const auto& row) { return row.second.library == path; });
      known.handles.erase(handle);
      dlclose(handle);
      throw;
    }
  }
  return known.libraries[path] = at->second;
}

std::vector<const TableRow*> rows_in(const std::string& library, const std::string& kind) {
  auto rows = rows_of(kind);
  std::erase_if(rows, [&](const TableRow* row) { return row->library != library; });
  return rows;
}

std::string names_in(const std::vector<const TableRow*>& rows) {
  std::vector<std::string> names;
  for (const auto* row : rows) names.push_back(row->name);
  return join(names, ", ");
}

// nullptr where it has none of this name, or where no name says which of several
const TableRow* pick(const std::vector<const TableRow*>& rows, const std::string& name) {
  if (name.empty()) return rows.size() == 1 ? rows[0] : nullptr;
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const auto* row) { return row->name == name; });
  return found == rows.end() ? nullptr : *found;
}

}  // namespace

std::vector<const TableRow*> rows_of(const std::string& kind) {
  std::vector<const TableRow*> rows;
  for (const auto& [key, row] : tables().rows) {
    if (key.first == kind) rows.push_back(&row);
  }
  return rows;
}

std::vector<std::string> names_of(const std::string& kind) {
  std::vector<std::string> names;
  for (const auto* row : rows_of(kind)) names.push_back(row->name);
  return names;
}

bool names_library(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".so") ||
         name.find(".so:") != std::string::npos;
}

const TableRow* find_row(const std::string& kind, const std::string& name) {
  if (!names_library(name)) {
    const auto found = tables().rows.find({kind, name});
    return found == tables().rows.end() ? nullptr : &found->second;
  }
  const auto [path, row] = library_name(name);
  const auto loaded = tables().libraries.find(path);
  return loaded == tables().libraries.end() ? nullptr : pick(rows_in(loaded->second, kind), row);
}

const TableRow& load_row(const std::string& kind, const std::string& name) {
  const auto [path, wanted] = library_name(name);
  const auto library = load(path, kind);
  const auto rows = rows_in(library, kind);
  if (const auto* row = pick(rows, wanted)) return *row;
  if (rows.empty()) {
    throw InputError(format("the shared library holds no {}", kind), library,
                     "add one with its LOCKSTEP_ macro: docs/how-to/extending.md");
  }
  if (wanted.empty()) {
    throw InputError(format("the shared library holds several {}s: {}", kind, names_in(rows)), library,
                     format("say which: {}:{}", path, rows[0]->name));
  }
  throw InputError(format("the shared library holds no {} called '{}'", kind, printable(wanted)), library,
                   format("it holds {}", names_in(rows)));
}

const TableRow& require_row(const std::string& kind, const std::string& name, const std::string& key) {
  if (names_library(name)) return load_row(kind, name);
  if (const auto* row = find_row(kind, name)) return *row;
  const auto names = names_of(kind);
  const auto near = nearest(name, names);
  throw InputError(format("there is no {} '{}'", kind, printable(name)), key,
                   near ? format("did you mean {}?", *near)
                        : format("there are {}; or the path of a shared library", join(names, ", ")));
}

void made_nothing(const std::string& kind, const std::string& name, const std::string& key) {
  throw Error(format("the {} '{}' was not made: its .make returned nothing", kind, printable(name)), key,
              "return what it makes, or throw an error that says why there is none");
}

}  // namespace lockstep::base

extern "C" void lockstep_add_row(const char* abi, const char* kind, const char* name,
                                 void (*fill)(void* row)) {
  using namespace lockstep::base;
  if (auto* announced = tables().loading) {
    announced->push_back({abi, kind, name, fill});
    return;
  }
  tables().abis.emplace(kind, abi);
  add(kind, name, "", fill);
}
