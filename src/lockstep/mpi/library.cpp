#include "lockstep/mpi/library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/mpi/calls.h"

namespace lockstep::mpi {
namespace fs = std::filesystem;
namespace {

constexpr const char* kOwnCall =
    "PMPI_Init_thread";  // tools may replace MPI_ functions, but not PMPI_ functions
constexpr const char* kOpenMpisOwn = "ompi_mpi_comm_world";
constexpr const char* kSetting = "LOCKSTEP_MPI";

struct Row {
  Family family;
  const char* name;
  const char* title;
  std::vector<std::string> files;  // as the vendors name them
};

// Spectrum MPI is Open MPI; Cray's libraries for one compiler have MPICH's interface.
const std::array<Row, 3>& rows() {
  static const std::array<Row, 3> table = {{
      {Family::open_mpi, "openmpi", "Open MPI", {"libmpi.so.40", "libmpi_ibm.so.3"}},
      {Family::mpich,
       "mpich",
       "MPICH",
       {"libmpi.so.12", "libmpich.so.12", "libmpi_gnu_123.so.12", "libmpi_gnu_91.so.12",
        "libmpi_cray.so.12"}},
      {Family::standard, "abi", "the MPI standard ABI", {"libmpi_abi.so.1"}},
  }};
  return table;
}

const Row& row_of(Family family) {
  return *std::find_if(rows().begin(), rows().end(), [&](const Row& row) { return row.family == family; });
}

std::string plugin_file(const Row& row) {
  return format("liblockstep_mpi_{}.so", row.name);
}

struct LibraryHandle {
  void* handle = nullptr;
  std::string file;
};

std::string file_of(void* symbol) {
  Dl_info found{};
  return ::dladdr(symbol, &found) && found.dli_fname ? found.dli_fname : "";
}

// Allowed before MPI_Init. -1: the library has the call but another ABI.
bool has_standard_abi(void* library) {
  const auto ask = reinterpret_cast<int (*)(int*, int*)>(::dlsym(library, "MPI_Abi_get_version"));
  int major = -1, minor = -1;
  return ask && ask(&major, &minor) == kSuccess && major >= 1;
}

Family family_of(const LibraryHandle& library) {
  if (has_standard_abi(library.handle)) return Family::standard;
  return ::dlsym(library.handle, kOpenMpisOwn) ? Family::open_mpi : Family::mpich;
}

// global symbols: MPI's plug-ins need them, and ours is not linked to an MPI
LibraryHandle open(const std::string& file, int more = 0) {
  void* handle = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_GLOBAL | more);
  if (!handle) return {};
  void* symbol = ::dlsym(handle, kOwnCall);
  return {handle, symbol ? file_of(symbol) : ""};
}

// The libraries of this process by their paths: dlopen would search all folders for a bare name.
std::vector<std::string> loaded_files() {
  std::vector<std::string> files;
  const auto add = [](dl_phdr_info* info, size_t, void* to) {
    if (std::strchr(info->dlpi_name, '/'))
      static_cast<std::vector<std::string>*>(to)->push_back(info->dlpi_name);
    return 0;
  };
  ::dl_iterate_phdr(add, &files);
  return files;
}

// empty if neither the file nor its dependencies have MPI
std::string file_of_mpi_in(const std::string& file) {
  void* handle = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return "";
  void* symbol = ::dlsym(handle, kOwnCall);
  ::dlclose(handle);
  return symbol ? file_of(symbol) : "";
}

// Linked to the program, or loaded locally by a module, and then made global.
std::optional<LibraryHandle> in_this_process() {
  if (void* symbol = ::dlsym(RTLD_DEFAULT, kOwnCall)) {
    open(file_of(symbol), RTLD_NOLOAD);
    return LibraryHandle{RTLD_DEFAULT, file_of(symbol)};
  }
  for (const auto& file : loaded_files())
    if (const auto mpi = file_of_mpi_in(file); !mpi.empty()) return open(mpi, RTLD_NOLOAD);
  return std::nullopt;
}

std::vector<std::string> names_of(const LibraryRequest& request) {
  std::vector<std::string> names;
  for (const Family family : request.families)
    names.insert(names.end(), row_of(family).files.begin(), row_of(family).files.end());
  return names;
}

// Calls is_it() with each candidate until it returns true: the named file, or the names in the folders, then
// the bare names, which the system searches.
bool any_candidate(const LibraryRequest& request, const std::function<bool(const std::string& file)>& is_it) {
  if (!request.file.empty()) return is_it(request.file);
  const auto names = names_of(request);
  for (const auto& folder : request.folders) {
    for (const auto& name : names) {
      std::error_code none;
      const auto file = folder + "/" + name;
      if (fs::exists(file, none) && is_it(file)) return true;
    }
  }
  return std::ranges::any_of(names, is_it);
}

std::string describe_request(const LibraryRequest& request) {
  std::vector<std::string> titles;
  for (const Family family : request.families) titles.emplace_back(title_of(family));
  return request.file.empty() ? "the library of " + base::join(titles, " or ") : request.file;
}

// `broken`: the first reason other than a missing file.
[[noreturn]] void refuse(const LibraryRequest& request, const std::string& broken) {
  std::error_code none;
  if (fs::is_directory(request.file, none))
    throw InputError(format("{} is a folder", kSetting), request.file,
                     "set it to the libmpi.so in that folder");
  throw InputError(
      broken.empty() ? describe_request(request) + " is not found" : "cannot load an MPI library: " + broken,
      request.because,
      format("load the module of the MPI whose mpirun you use, so that LD_LIBRARY_PATH lists "
             "its folder, or set {} to the library",
             kSetting));
}

LibraryHandle search(const LibraryRequest& request) {
  std::string broken;
  LibraryHandle library;
  const auto opens = [&](const std::string& file) {
    library = open(file);
    if (!library.file.empty()) return true;
    const std::string why = library.handle ? file + ": it has no MPI_Init_thread" : ::dlerror();
    if (broken.empty() && !why.starts_with(file + ": cannot open")) broken = why;
    return false;
  };
  if (!any_candidate(request, opens)) refuse(request, broken);
  return library;
}

const PluginTable& open_plugin(const Row& row) {
  const auto path = base::find_beside(plugin_file(row));
  if (path.empty())
    throw InputError(
        format("this lockstep was built without its plug-in for {}", row.title), plugin_file(row),
        format("build it where the mpi.h of {} is (docs/how-to/install.md), or start the ranks with "
               "another MPI's mpirun",
               row.title));
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    throw Error(format("cannot load lockstep's plug-in for {}: {}", row.title, ::dlerror()), path,
                "check that this MPI is complete and supports MPI-3");
  using Table = const PluginTable* (*)();
  const auto table = reinterpret_cast<Table>(::dlsym(handle, kPluginSymbol));
  if (table && table()->version == kPluginVersion) return *table();
  throw InputError(format("lockstep's plug-in for {} belongs to another version of lockstep: {}, not {}",
                          row.title, table ? format("{}", table()->version) : "not known", kPluginVersion),
                   path, "install all of lockstep from one build");
}

template <class Call>
void take(Call& call, const LibraryHandle& library, const char* name) {
  call = reinterpret_cast<Call>(::dlsym(library.handle, name));
  if (!call)
    throw Error(format("this MPI library has no {}", name), library.file,
                "use an MPI library that supports all of MPI-3");
}

Calls calls_of_the_standard(const LibraryHandle& library) {
  Calls calls{};
#define CALL(name, Name, parameters) take(calls.name, library, "MPI_" #Name);
#include "lockstep/mpi/calls.inc"
  return calls;
}

// "Open MPI v4.1.4", "MPICH 4.0.2"
std::string version_of(const Calls& calls) {
  std::array<char, kMaxLibraryVersion> text{};
  int length = 0;
  calls.get_library_version(text.data(), &length);
  const std::string whole(text.data());
  std::istringstream words(whole.substr(0, whole.find_first_of(",\n")));
  std::vector<std::string> version;
  for (std::string word; words >> word;)
    if (word != "Version:") version.push_back(word);
  return base::join(version, " ");
}

struct LoadedMpi {
  Library library;
  Calls calls;
};

LoadedMpi load_first(const LibraryRequest& request) {
  const auto there = in_this_process();
  const auto opened = there ? *there : search(request);
  const auto family = family_of(opened);
  const auto calls =
      family == Family::standard ? calls_of_the_standard(opened) : open_plugin(row_of(family)).calls;
  return {{.family = family,
           .file = opened.file,
           .version = version_of(calls),
           .because = there ? "already loaded in this process" : request.because},
          calls};
}

const LoadedMpi* g_loaded = nullptr;

}  // namespace

std::string_view title_of(Family family) {
  return row_of(family).title;
}

std::vector<std::string> supported() {
  std::vector<std::string> names;
  for (const auto& row : rows()) {
    if (row.family == Family::standard || !base::find_beside(plugin_file(row)).empty())
      names.emplace_back(row.name);
  }
  return names;
}

LibraryRequest apply_choice(LibraryRequest request, const std::string& choice) {
  if (choice.empty()) return request;
  for (const auto& row : rows()) {
    if (choice != row.name) continue;
    const auto& known = request.families;
    if (std::find(known.begin(), known.end(), row.family) == known.end())
      throw InputError(format("{} is {}, but another MPI started the ranks", kSetting, choice),
                       request.because,
                       format("unset {}, or start the ranks with the mpirun of {}", kSetting, row.title));
    request.families = {row.family};
    request.because = format("{} is {}", kSetting, choice);
    return request;
  }
  if (choice.find('/') == std::string::npos)
    throw InputError(format("{} is '{}'", kSetting, choice), "the environment",
                     format("one of {}, or the path of a library", base::join(supported(), ", ")));
  request.file = choice;
  request.because = format("{} is {}", kSetting, choice);
  return request;
}

const Library& load(const LibraryRequest& request) {
  static const LoadedMpi& first =
      *new LoadedMpi(load_first(request));  // never destroyed, for a late finalize
  g_loaded = &first;
  return first.library;
}

const Library* loaded() {
  return g_loaded ? &g_loaded->library : nullptr;
}

const Calls& calls() {
  if (!g_loaded)
    throw Error("MPI is not in use in this job", "", "start the ranks with mpirun or srun --mpi=pmix");
  return g_loaded->calls;
}

}  // namespace lockstep::mpi
