#pragma once
// What a container's control groups leave of the machine's cores.

#include <optional>
#include <string>

namespace lockstep::launch {

/// The cores' worth of time that a container's control groups leave this process and its like; nullopt where
/// they set no bound. `root` stands for / in tests.
struct CpuQuota {
  double cores = 0;
  std::string because;  // the file that says so
};
std::optional<CpuQuota> cpu_quota(const std::string& root = "");

}  // namespace lockstep::launch
