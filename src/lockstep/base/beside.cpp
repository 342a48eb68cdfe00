#include "lockstep/base/beside.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

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

std::string first_of(const std::vector<std::string>& paths) {
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
  const auto near = first_of(places_around(self, file));
  return near.empty() ? first_of(places_behind_link(self, file)) : near;
}

}  // namespace lockstep::base
