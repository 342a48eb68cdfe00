// Memory, swap, what a control group leaves of them, and /dev/shm.
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files/shared_memory.h"
#include "lockstep/base/files/small_file.h"
#include "lockstep/launch/control_groups.h"
#include "tools/doctor/node/collect.h"

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

// By version of control groups, less one.
constexpr Files kFiles[] = {{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
                            {"memory.max", "memory.current", "inactive_file"}};

void collect_group(Memory& memory) {
  for (const auto& [folder, version_1] : launch::control_groups("memory")) {
    const Files& files = kFiles[version_1 ? 0 : 1];
    const auto limit = base::number_in(base::first_line(folder / files.limit));  // "max" is no number
    if (!limit || *limit >= kNoLimit || (memory.limit >= 0 && *limit >= memory.limit)) continue;
    memory.limit = *limit;
    memory.used = base::number_in(base::first_line(folder / files.used)).value_or(-1);
    if (memory.used >= 0) memory.used = std::max(0LL, memory.used - stat_of(folder, files.cache));
    memory.limit_file = (folder / files.limit).string();
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

void collect_memory(RankFacts& facts, const DoctorSettings&) {
  Memory& memory = facts.memory;
  memory.total = in_kib("MemTotal");
  memory.available = in_kib("MemAvailable");
  memory.swap = in_kib("SwapTotal");
  collect_group(memory);
  collect_shm(memory);
}

}  // namespace lockstep::doctor
