#pragma once
// What libtorch says of itself, taken apart.

#include <string>
#include <vector>

namespace lockstep::doctor {

/// "sm_90", "compute_90", ...: the GPU architectures named in at::show_config().
std::vector<std::string> architectures_in(const std::string& config);

}  // namespace lockstep::doctor
