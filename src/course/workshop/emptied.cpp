#include "course/workshop/emptied.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

bool is_folder(const fs::path& path) {
  std::error_code none;
  return fs::symlink_status(path, none).type() == fs::file_type::directory;
}

void open_all(const fs::path& folder) {
  open_folder(folder);
  std::error_code closed;
  for (fs::directory_iterator entry(folder, closed), end; !closed && entry != end; entry.increment(closed)) {
    if (is_folder(entry->path())) open_all(entry->path());
  }
}

}  // namespace

void open_folder(const std::string& folder) {
  std::error_code not_ours;
  if (is_folder(folder)) fs::permissions(folder, fs::perms::owner_all, fs::perm_options::add, not_ours);
}

void make_empty(const std::string& folder) {
  std::error_code failed;
  fs::remove_all(folder, failed);
  if (failed) {
    open_all(folder);
    fs::remove_all(folder, failed);
  }
  if (!failed) fs::create_directories(folder, failed);
  if (failed)
    throw InputError(
        format("the folder in which your program is to run cannot be emptied: {}", failed.message()), folder,
        "remove it by hand, then check again");
}

}  // namespace lockstep::workshop
