#include "lockstep/base/paths.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep::base {

namespace fs = std::filesystem;
namespace {

fs::path this_code() {
  Dl_info own{};
  if (!::dladdr(reinterpret_cast<void*>(&places_beside), &own) || !own.dli_fname) return {};
  return fs::absolute(own.dli_fname);
}

std::vector<std::string> places_around(const fs::path& self, const std::string& file) {
  std::vector<std::string> paths;
  for (const char* place : {".", "../lib", "lib"})
    paths.push_back((self.parent_path() / place / file).string());
  return paths;
}

// a link may lie apart from the rest
std::vector<std::string> places_behind_link(const fs::path& self, const std::string& file) {
  std::error_code gone;
  return places_around(fs::weakly_canonical(self, gone), file);
}

std::string first_there(const std::vector<std::string>& paths) {
  const auto there = std::ranges::find_if(paths, [](const auto& path) { return fs::exists(path); });
  return there == paths.end() ? "" : *there;
}

}  // namespace

std::vector<std::string> places_beside(const std::string& file) {
  const auto self = this_code();
  if (self.empty()) return {};
  auto paths = places_around(self, file);
  const auto more = places_behind_link(self, file);
  paths.insert(paths.end(), more.begin(), more.end());
  return paths;
}

std::string find_beside(const std::string& file) {
  const auto self = this_code();
  if (self.empty()) return "";
  const auto near = first_there(places_around(self, file));
  return near.empty() ? first_there(places_behind_link(self, file)) : near;
}

namespace fs = std::filesystem;
namespace {

// Asked of this code first: a program of a library user lies anywhere. In a program dladdr has only argv[0].
fs::path folder_of_this_code() {
  Dl_info self{};
  std::error_code none;
  const bool known =
      dladdr(reinterpret_cast<void*>(&home_folder), &self) && self.dli_fname && *self.dli_fname == '/';
  return fs::canonical(known ? self.dli_fname : "/proc/self/exe", none).parent_path();
}

std::string home_of_library() {
  std::error_code none;
  auto above = folder_of_this_code();
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

std::string home_folder() {
  if (const char* home = std::getenv("LOCKSTEP_HOME"); home && *home) {
    std::error_code none;
    if (fs::is_directory(home, none)) return home;
    throw InputError("LOCKSTEP_HOME is no folder", home,
                     "unset it, or set it to the folder that holds configs, data and job_scripts");
  }
  static const std::string found = home_of_library();
  return found;
}

std::string find_path(const std::string& path) {
  std::error_code none;
  if (path.empty() || fs::path(path).is_absolute() || fs::exists(path, none)) return path;
  const auto home = home_folder();
  if (!home.empty() && fs::exists(fs::path(home) / path, none)) return fs::path(home) / path;
  return path;
}

}  // namespace lockstep::base
