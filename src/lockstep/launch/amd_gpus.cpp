#include "lockstep/launch/amd_gpus.h"

#include <filesystem>

#include "lockstep/base/files/small_file.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNodes = "/sys/class/kfd/kfd/topology/nodes";
constexpr long long kAmd = 0x1002;

// Processors are nodes as well, and compute with nothing.
bool is_gpu(const fs::path& node) {
  const auto number = [&](const char* name) {
    return base::number_in(base::field(node / "properties", name)).value_or(0);
  };
  return number("vendor_id ") == kAmd && number("simd_count ") > 0;
}

}  // namespace

int count_amd_gpus(const std::string& root) {
  int count = 0;
  std::error_code failed;
  for (fs::directory_iterator node(root + kNodes, failed), end; !failed && node != end;
       node.increment(failed))
    count += is_gpu(node->path());
  return count;
}

}  // namespace lockstep::launch
