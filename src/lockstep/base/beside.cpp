#include "lockstep/base/beside.h"

#include <dlfcn.h>

#include <filesystem>

namespace lockstep::base {
namespace fs = std::filesystem;

std::vector<std::string> places_beside(const std::string& file) {
  Dl_info own{};
  if (!::dladdr(reinterpret_cast<void*>(&places_beside), &own) || !own.dli_fname) return {};
  const auto named = fs::absolute(own.dli_fname);
  std::error_code gone;
  std::vector<std::string> paths;
  for (const auto& self : {named, fs::weakly_canonical(named, gone)}) {  // a link may lie apart from the rest
    for (const char* place : {".", "../lib", "lib"})
      paths.push_back((self.parent_path() / place / file).string());
  }
  return paths;
}

}  // namespace lockstep::base
