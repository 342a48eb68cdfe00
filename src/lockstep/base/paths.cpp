#include "lockstep/base/paths.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::base {

namespace fs = std::filesystem;
namespace {

// The file that holds this code: the library, or the program that lockstep is linked into.
fs::path this_code() {
  Dl_info own{};
  std::error_code none;
  const bool is_known = ::dladdr(reinterpret_cast<void*>(&home_folder), &own) && own.dli_fname;
  // in a program dladdr has only argv[0]
  if (is_known && std::string_view(own.dli_fname).find('/') != std::string_view::npos)
    return fs::absolute(own.dli_fname);
  return fs::read_symlink("/proc/self/exe", none);
}

// A link to the code may be in another folder.
fs::path without_links(const fs::path& path) {
  std::error_code none;
  return fs::weakly_canonical(path, none);
}

std::vector<std::string> paths_around(const fs::path& code, const std::string& file) {
  std::vector<std::string> paths;
  for (const char* place : {".", "../lib", "lib"})
    paths.push_back((code.parent_path() / place / file).string());
  return paths;
}

std::string first_existing(const std::vector<std::string>& paths) {
  const auto found = std::ranges::find_if(paths, [](const auto& path) { return fs::exists(path); });
  return found == paths.end() ? "" : *found;
}

std::string home_of_library() {
  std::error_code none;
  auto above = without_links(this_code()).parent_path();
  // up from PREFIX/lib[64][/triple] or SOURCE/build/PRESET/lib
  for (int level = 0; level < 3 && above.has_relative_path(); ++level) {
    above = above.parent_path();
    if (fs::is_directory(above / "share/lockstep/configs", none)) return above / "share/lockstep";
    if (fs::is_directory(above / "configs", none) && fs::is_directory(above / "job_scripts", none))
      return above;
  }
  return {};
}

}  // namespace

std::vector<std::string> places_beside(const std::string& file) {
  const auto self = this_code();
  auto paths = paths_around(self, file);
  for (auto& path : paths_around(without_links(self), file)) paths.push_back(std::move(path));
  return paths;
}

std::string find_beside(const std::string& file) {
  const auto self = this_code();
  const auto near = first_existing(paths_around(self, file));
  return near.empty() ? first_existing(paths_around(without_links(self), file)) : near;
}

std::string home_folder() {
  if (const char* home = std::getenv("LOCKSTEP_HOME"); home && *home) {
    std::error_code none;
    if (fs::is_directory(home, none)) return home;
    throw InputError("LOCKSTEP_HOME is not a folder", home,
                     "unset it, or set it to the folder that holds configs, data and job_scripts");
  }
  static const std::string found = home_of_library();
  return found;
}

std::string find_path(const std::string& path) {
  std::error_code none;
  if (path.empty() || fs::path(path).is_absolute() || fs::exists(path, none)) return path;
  const auto home = home_folder();
  return !home.empty() && fs::exists(fs::path(home) / path, none) ? fs::path(home) / path : fs::path(path);
}

}  // namespace lockstep::base
