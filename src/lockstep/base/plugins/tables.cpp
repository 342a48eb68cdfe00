#include "lockstep/base/plugins/tables.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

// Without a slash dlopen would search the system's library folders.
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
  throw InputError(
      format("{} does not load a library of another user (uid {}), because that would run its code", doing,
             facts.st_uid),
      path, "copy it to a folder of your own if you trust it, and name the copy");
}

}  // namespace lockstep::base

namespace lockstep {

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
  const auto value = base::parse_number<Number>(*text);
  if (!value) refuse_option(name, *text, wanted);
  return *value;
}

}  // namespace

template <>
double option(const RowOptions& options, const std::string& name, double otherwise) {
  return number(options, name, otherwise, "a number");
}

template <>
int64_t option(const RowOptions& options, const std::string& name, int64_t otherwise) {
  return number(options, name, otherwise, "an integer");
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

namespace lockstep::base {
namespace {

constexpr const char* kHow = "docs/how-to/extending.md shows how to build one";

using Fill = void (*)(void*);

// A row that a library added while it was loaded. Its abi is checked before anything else of it is used.
struct PluginRow {
  std::string abi, kind, name;
  Fill fill;
};

struct Tables {
  std::map<std::pair<std::string, std::string>, TableRow> rows;  // by kind and name
  std::map<std::string, std::string> abis;                       // the program's own, by kind
  std::map<std::string, std::string> libraries;  // by absolute path: the path it was loaded by
  std::map<void*, std::string> handles;
  std::vector<PluginRow>* loading = nullptr;
};

// Never destroyed, because objects from the libraries may be destroyed later than any static.
Tables& tables() {
  static auto* all = new Tables;
  return *all;
}

void add(const std::string& kind, const std::string& name, const std::string& library, Fill fill) {
  const auto [at, added] = tables().rows.try_emplace({kind, name});
  TableRow& row = at->second;
  if (!added) {
    throw InputError(format("there are two {}s called '{}': one is {}", kind, name,
                            row.library.empty() ? "built in" : "from " + row.library),
                     library.empty() ? "the program" : library, "rename one of them");
  }
  row = {kind, name, library, {}, {}};
  fill(&row);
}

[[noreturn]] void refuse_abi(const std::string& kind, const std::string& theirs, const std::string& path) {
  throw InputError(format("the {} was built for another version of lockstep: for '{}', this is '{}'", kind,
                          printable(theirs), tables().abis[kind]),
                   path, "rebuild it with this lockstep's headers");
}

// Libraries from before the tables had one task each.
void refuse_old(void* handle, const std::string& path) {
  if (void* found = dlsym(handle, "lockstep_task_abi"))
    refuse_abi("task", reinterpret_cast<const char* (*)()>(found)(), path);
}

// A truncated copy would end the process inside dlopen by SIGBUS. The section table is at the end of a file.
void refuse_cut_off(const RegularFile& file, const std::string& kind, const std::string& path) {
  Elf64_Ehdr header{};
  const bool is_whole = file.read_at(0, &header, sizeof header) == sizeof header;
  if (!is_whole || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return;  // dlopen reports it
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return;
  const uint64_t sections = uint64_t{header.e_shnum} * header.e_shentsize;
  if (header.e_shoff <= file.size() && sections <= file.size() - header.e_shoff) return;
  throw InputError(format("cannot load the {}: its shared library is truncated", kind), path,
                   "copy or build it again");
}

// dlopen; its initializers add the announced rows.
void* open_library(const std::string& path, const std::string& kind, std::vector<PluginRow>& announced) {
  refuse_cut_off(RegularFile(path, format("the {}'s shared library", kind), kHow), kind, path);
  tables().loading = &announced;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  tables().loading = nullptr;
  if (!handle) throw InputError(format("cannot load the {}: {}", kind, dlerror()), path, kHow);
  return handle;
}

void take(const std::vector<PluginRow>& announced, const std::string& path) {
  for (const auto& row : announced)
    if (row.abi != tables().abis[row.kind]) refuse_abi(row.kind, row.abi, path);
  for (const auto& row : announced) add(row.kind, row.name, path, row.fill);
}

// The library's path in its rows. The library stays loaded, because it contains the code of its objects.
std::string load(const std::string& path, const std::string& kind) {
  auto& known = tables();
  if (const auto found = known.libraries.find(path); found != known.libraries.end()) return found->second;
  std::vector<PluginRow> announced;
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

// nullptr if there is no row of this name, or several rows and no name
const TableRow* pick(const std::vector<const TableRow*>& rows, const std::string& name) {
  if (name.empty()) return rows.size() == 1 ? rows[0] : nullptr;
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const auto* row) { return row->name == name; });
  return found == rows.end() ? nullptr : *found;
}

}  // namespace

std::vector<const TableRow*> rows_of(const std::string& kind) {
  std::vector<const TableRow*> rows;
  for (const auto& [key, row] : tables().rows)
    if (key.first == kind) rows.push_back(&row);
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
    throw InputError(format("the shared library has no {}", kind), library,
                     "add one with its LOCKSTEP_ macro (see docs/how-to/extending.md)");
  }
  if (wanted.empty()) {
    throw InputError(format("the shared library has several {}s: {}", kind, names_in(rows)), library,
                     format("name one: {}:{}", path, rows[0]->name));
  }
  throw InputError(format("the shared library has no {} called '{}'", kind, printable(wanted)), library,
                   format("choose one of {}", names_in(rows)));
}

const TableRow& require_row(const std::string& kind, const std::string& name, const std::string& key) {
  if (names_library(name)) return load_row(kind, name);
  if (const auto* row = find_row(kind, name)) return *row;
  const auto names = names_of(kind);
  throw InputError(
      format("there is no {} '{}'", kind, printable(name)), key,
      did_you_mean(name, names,
                   format("choose one of {}, or the path of a shared library", join(names, ", "))));
}

void refuse_null(const std::string& kind, const std::string& name, const std::string& key) {
  throw Error(format("the .make of {} '{}' returned nothing", kind, printable(name)), key,
              "return an object, or throw an error that says why not");
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
