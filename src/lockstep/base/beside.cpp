#include "lockstep/base/beside.h"

#include <dlfcn.h>

#include <filesystem>

namespace lockstep::base {

std::vector<std::string> places_beside(const std::string& file) {
  Dl_info own{};
  if (!::dladdr(reinterpret_cast<void*>(&places_beside), &own) || !own.dli_fname) return {};
  const auto folder = std::filesystem::absolute(own.dli_fname).parent_path();
  std::vector<std::string> paths;
  for (const char* place : {".", "../lib", "lib"}) paths.push_back((folder / place / file).string());
  return paths;
}

}  // namespace lockstep::base
