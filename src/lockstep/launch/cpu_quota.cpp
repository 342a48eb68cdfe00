#include "lockstep/launch/cpu_quota.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/base/small_file.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

// cpu.max of version 2: "max 100000" or "150000 100000"
std::optional<double> quota_v2(const fs::path& folder) {
  std::istringstream words(base::first_line(folder / "cpu.max"));
  double quota = 0, period = 0;
  if (words >> quota >> period && quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

// -1 is none
std::optional<double> quota_v1(const fs::path& folder) {
  double quota = 0, period = 0;
  if (std::istringstream(base::first_line(folder / "cpu.cfs_quota_us")) >> quota &&
      std::istringstream(base::first_line(folder / "cpu.cfs_period_us")) >> period && quota > 0 &&
      period > 0) {
    return quota / period;
  }
  return std::nullopt;
}

struct Hierarchy {
  fs::path mount;
  std::string group;
  const char* file;
  std::optional<double> (*quota)(const fs::path& folder);
};

// Lines of /proc/self/cgroup: "0::/group" (version 2), "4:cpu,cpuacct:/group" (version 1)
std::optional<Hierarchy> hierarchy_of(const std::string& line, const std::string& root) {
  const auto first = line.find(':'), second = line.find(':', first + 1);
  if (second == std::string::npos) return std::nullopt;
  const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
  const fs::path mounts = root + "/sys/fs/cgroup";
  if (controllers.empty()) {
    const bool beside = fs::is_directory(mounts / "unified");  // both versions are mounted
    return Hierarchy{beside ? mounts / "unified" : mounts, group, "cpu.max", quota_v2};
  }
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "cpu") return Hierarchy{mounts / "cpu", group, "cpu.cfs_quota_us", quota_v1};
  }
  return std::nullopt;
}

// From the group up to the mount: each may bound what is below. In a container the path may be the host's,
// and the container's own group is what is mounted.
void look_up(const Hierarchy& hierarchy, std::optional<CpuQuota>& least) {
  fs::path group = fs::path(hierarchy.group).relative_path();
  while (true) {
    const fs::path folder = group.empty() ? hierarchy.mount : hierarchy.mount / group;
    const auto cores = hierarchy.quota(folder);
    if (cores && (!least || *cores < least->cores))
      least = CpuQuota{*cores, (folder / hierarchy.file).string()};
    if (group.empty()) return;
    group = group.parent_path();
  }
}

}  // namespace

std::optional<CpuQuota> cpu_quota(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::optional<CpuQuota> least;
  for (std::string line; std::getline(file, line);) {
    if (const auto hierarchy = hierarchy_of(line, root)) look_up(*hierarchy, least);
  }
  return least;
}

}  // namespace lockstep::launch
