#include "lockstep/base/files/claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "lockstep/base/format.h"

namespace lockstep::base {
namespace {

namespace fs = std::filesystem;

constexpr const char *kClaimPrefix = "lockstep-", *kClaimSuffix = ".shared";

bool is_own_file(const Descriptor& file) {
  struct stat facts {};
  return file && ::fstat(file.number(), &facts) == 0 && S_ISREG(facts.st_mode) &&
         facts.st_uid == ::geteuid() && facts.st_nlink > 0;
}

}  // namespace

std::string claimed_name(const std::string& name) {
  return format("{}{}{}", kClaimPrefix, name, kClaimSuffix);
}

bool claim(const Descriptor& file) {
  // without locks nobody can sweep either
  if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return is_own_file(file);
}

void remove_unclaimed(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!is_own_file(file) || ::flock(file.number(), LOCK_EX | LOCK_NB) != 0) return;
  // Locked until the name is gone, as its maker may be about to claim it. Without a link it was removed
  // before the lock, and the name may be another file's by now.
  if (is_own_file(file)) ::unlink(path.c_str());
}

void sweep_unclaimed(const std::string& folder) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(kClaimPrefix) || !name.ends_with(kClaimSuffix)) continue;
    remove_unclaimed(entry.path());
  }
}

}  // namespace lockstep::base
