// Memory, swap, what a control group leaves of them, and /dev/shm.
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "lockstep/base/error.h"
#include "lockstep/base/shared_memory.h"
#include "lockstep/base/small_file.h"
#include "lockstep/doctor/collect.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

constexpr size_t kProbe = 1 << 20;         // a job of one node meets in less
constexpr long long kNoLimit = 1LL << 60;  // version 1 says a number near 2^63

long long in_kib(const char* name) {
  const auto value = base::number_in(base::field("/proc/meminfo", std::string(name) + ":"));
  return value ? *value * 1024 : -1;
}

struct Files {
  const char* limit;
  const char* used;
  const char* cache;  // in memory.stat: counted as used, and given back when it is wanted
};

long long stat_of(const fs::path& folder, const std::string& name) {
  std::ifstream lines(folder / "memory.stat");
  std::string key;
  for (long long value = 0; lines >> key >> value;) {
    if (key == name) return value;
  }
  return 0;
}

// The group and those above it: each may bound what is below.
void look_up(const fs::path& mount, const std::string& group, const Files& files, Memory& memory) {
  for (fs::path path = fs::path(group).relative_path();; path = path.parent_path()) {
    const fs::path folder = path.empty() ? mount : mount / path;
    const auto limit = base::number_in(base::first_line(folder / files.limit));  // "max" is no number
    if (limit && *limit < kNoLimit && (memory.limit < 0 || *limit < memory.limit)) {
      memory.limit = *limit;
      memory.used = base::number_in(base::first_line(folder / files.used)).value_or(-1);
      if (memory.used >= 0) memory.used = std::max(0LL, memory.used - stat_of(folder, files.cache));
      memory.limit_file = (folder / files.limit).string();
    }
    if (path.empty()) return;
  }
}

// Lines of /proc/self/cgroup: "0::/group" (version 2), "4:memory:/group" (version 1)
void collect_group(Memory& memory) {
  std::ifstream groups("/proc/self/cgroup");
  const fs::path mounts = "/sys/fs/cgroup";
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kinds = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (kinds == ",,") look_up(mounts, group, {"memory.max", "memory.current", "inactive_file"}, memory);
    if (kinds.find(",memory,") != std::string::npos)
      look_up(mounts / "memory", group,
              {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}, memory);
  }
}

void collect_shm(Memory& memory) {
  struct stat folder {};
  if (::stat("/dev/shm", &folder) == 0) memory.shm_device = folder.st_dev;
  struct statvfs system {};
  if (::statvfs("/dev/shm", &system) == 0) {
    memory.shm_total = static_cast<long long>(system.f_blocks) * static_cast<long long>(system.f_frsize);
    memory.shm_free = static_cast<long long>(system.f_bavail) * static_cast<long long>(system.f_frsize);
  }
  try {
    base::SharedMemory::create(kProbe).unlink();
  } catch (const std::exception& error) {
    memory.shm_error = error.what();
  }
}

}  // namespace

void collect_memory(Facts& facts, const Settings&) {
  Memory& memory = facts.memory;
  memory.total = in_kib("MemTotal");
  memory.available = in_kib("MemAvailable");
  memory.swap = in_kib("SwapTotal");
  collect_group(memory);
  collect_shm(memory);
}

}  // namespace lockstep::doctor
