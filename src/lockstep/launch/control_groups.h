#pragma once
// The control groups that bound what this process may use.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// One of them, as the kernel shows it.
struct ControlGroup {
  std::filesystem::path folder;
  bool version_1 = false;
};

/// Those that may bound what `controller` ("cpu", "memory") deals in: this process's own, and all above it.
/// `root` stands for / in tests.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root = "");

// What a container's control groups leave of the machine's cores.

/// The cores' worth of time that a container's control groups leave this process and its like; nullopt where
/// they set no bound. `root` stands for / in tests.
struct CpuQuota {
  double cores = 0;
  std::string because;  // the file that says so
};
std::optional<CpuQuota> cpu_quota(const std::string& root = "");

}  // namespace lockstep::launch
