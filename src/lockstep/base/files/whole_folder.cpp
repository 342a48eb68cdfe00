#include "lockstep/base/files/whole_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep::base {
namespace {

namespace fs = std::filesystem;

fs::path without_slash(const std::string& path) {
  const fs::path plain(path);
  return plain.has_filename() ? plain : plain.parent_path();
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// Gone with its owner, unless it was put in place.
struct Unfinished {
  fs::path path;
  ~Unfinished() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

}  // namespace

void check_new_folder(const std::string& wanted, const std::string& hint) {
  const auto path = without_slash(wanted);
  std::error_code failed;
  const auto there = fs::symlink_status(path, failed);
  if (fs::exists(there) && !fs::is_directory(there)) throw InputError("this is no folder", wanted, hint);
  if (fs::is_directory(there) && !fs::is_empty(path, failed))
    throw InputError("the folder is there, and not empty", wanted, hint);
  if (!fs::is_directory(folder_of(path), failed))
    throw InputError("there is no folder to put it in", wanted, hint);
  if (::access(folder_of(path).c_str(), W_OK) != 0)
    throw InputError(std::string("cannot write there: ") + std::strerror(errno), wanted, hint);
}

void write_whole_folder(const std::string& wanted, const std::string& hint,
                        const std::function<void(const std::string& folder)>& write) {
  check_new_folder(wanted, hint);
  const auto path = without_slash(wanted);
  std::string name = (folder_of(path) / ("." + path.filename().string() + ".partial.XXXXXX")).string();
  if (!::mkdtemp(name.data()))
    throw InputError(std::string("cannot write there: ") + std::strerror(errno), wanted, hint);
  Unfinished made{name};
  write(name);
  if (::chmod(name.c_str(), 0755) != 0 || ::rename(name.c_str(), path.c_str()) != 0)
    throw Error(std::string("cannot put the folder in place: ") + std::strerror(errno), wanted, hint);
  made.path.clear();
}

}  // namespace lockstep::base
