#include "lockstep/launch/control_groups.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/base/files/file.h"

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

// -1 means no limit
std::optional<double> quota_v1(const fs::path& folder) {
  double quota = 0, period = 0;
  if (std::istringstream(base::first_line(folder / "cpu.cfs_quota_us")) >> quota &&
      std::istringstream(base::first_line(folder / "cpu.cfs_period_us")) >> period && quota > 0 &&
      period > 0) {
    return quota / period;
  }
  return std::nullopt;
}

// From the group up to the mount. In a container the path may be the host's, and the mount its own group.
void add_with_those_above(std::vector<ControlGroup>& groups, const fs::path& mount, const std::string& name,
                          bool version_1) {
  for (fs::path path = fs::path(name).relative_path();; path = path.parent_path()) {
    groups.push_back({path.empty() ? mount : mount / path, version_1});
    if (path.empty()) return;
  }
}

}  // namespace

// Lines of /proc/self/cgroup: "0::/group" (version 2), "4:cpu,cpuacct:/group" (version 1)
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  const fs::path mounts = root + "/sys/fs/cgroup";
  std::vector<ControlGroup> groups;
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kinds = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string name = line.substr(second + 1);
    if (kinds == ",,") {
      const bool beside = fs::is_directory(mounts / "unified");  // both versions are mounted
      add_with_those_above(groups, beside ? mounts / "unified" : mounts, name, false);
    }
    if (kinds.find("," + controller + ",") != std::string::npos)
      add_with_those_above(groups, mounts / controller, name, true);
  }
  return groups;
}

// Each group also limits the groups below it.
std::optional<CpuQuota> cpu_quota(const std::string& root) {
  std::optional<CpuQuota> least;
  for (const auto& [folder, version_1] : control_groups("cpu", root)) {
    const auto cores = version_1 ? quota_v1(folder) : quota_v2(folder);
    const char* file = version_1 ? "cpu.cfs_quota_us" : "cpu.max";
    if (cores && (!least || *cores < least->cores)) least = CpuQuota{*cores, (folder / file).string()};
  }
  return least;
}

}  // namespace lockstep::launch
