#pragma once
// The control groups that limit this process.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

struct ControlGroup {
  std::filesystem::path folder;
  bool version_1 = false;
};

/// The groups of `controller` ("cpu", "memory") that may limit this process: its own and all above it. `root`
/// replaces / in tests.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root = "");

/// The CPU time that control groups allow this process and others in its group, as a number of cores; nullopt
/// without a limit.
struct CpuQuota {
  double cores = 0;
  std::string because;  // the file with the limit
};
std::optional<CpuQuota> cpu_quota(const std::string& root = "");

}  // namespace lockstep::launch
