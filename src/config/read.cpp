#include "base/file.h"
#include "base/paths.h"
#include "config/load.h"

namespace lockstep {
namespace {

constexpr size_t kMaxBytes = 1'000'000;

}  // namespace

ConfigText read_config_text(const std::string& path) {
  const std::string found = find_path(path);
  return {found, read_small_file(found, kMaxBytes, "the config")};
}

}  // namespace lockstep
