#include "lockstep/base/plugins/library_name.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"

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
