#include "tools/doctor/job/probes.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRandom = "XXXXXX";
constexpr time_t kOld = 600;  // seconds: no doctor lives so long

struct Living {
  std::mutex mutex;
  std::set<std::string> paths;
};

// never destroyed: a thread that hangs may come back at any time
Living& living() {
  static auto* all = new Living;
  return *all;
}

void remove(const std::string& path) {
  std::error_code none;
  fs::remove_all(path, none);
}

// by the file system's own clock
void remove_old(const fs::path& own, const std::string& name) {
  struct stat now {};
  if (::lstat(own.c_str(), &now) != 0) return;
  std::error_code failed;
  for (fs::directory_iterator entry(own.parent_path(), failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const auto other = entry->path().filename().string();
    struct stat facts {};
    if (!other.starts_with(name) || other.size() != name.size() + std::strlen(kRandom)) continue;
    if (::lstat(entry->path().c_str(), &facts) != 0 || facts.st_uid != ::geteuid()) continue;
    if (facts.st_mtime + kOld < now.st_mtime) remove(entry->path().string());
  }
}

}  // namespace

Probe::Probe(const std::string& folder, const std::string& name, Kind kind)
    : path_((fs::path(folder) / (name + kRandom)).string()) {
  if (kind == Kind::file) file_ = base::Descriptor(::mkostemp(path_.data(), O_CLOEXEC));
  if (kind == Kind::file ? !file_ : !::mkdtemp(path_.data())) throw Error(std::strerror(errno), folder);
  {
    const std::lock_guard lock(living().mutex);
    living().paths.insert(path_);
  }
  remove_old(path_, name);
}

Probe::~Probe() {
  remove(path_);
  const std::lock_guard lock(living().mutex);
  living().paths.erase(path_);
}

void remove_probes() {
  std::set<std::string> paths;
  {
    const std::lock_guard lock(living().mutex);
    paths = living().paths;
  }
  for (const auto& path : paths) remove(path);
}

}  // namespace lockstep::doctor
