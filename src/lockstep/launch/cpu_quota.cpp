#include "lockstep/launch/cpu_quota.h"

#include <filesystem>
#include <sstream>

#include "lockstep/base/files/small_file.h"
#include "lockstep/launch/control_groups.h"

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

}  // namespace

// Each group may bound what is below it.
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
