// A config's text, from the working directory or LOCKSTEP_HOME.
#include "lockstep/base/file.h"
#include "lockstep/base/paths.h"
#include "lockstep/config/load.h"

namespace lockstep::config {
namespace {

constexpr size_t kMaxBytes = 1'000'000;

}  // namespace

ConfigText read_config_text(const std::string& path) {
  const std::string found = base::find_path(path);
  return {found, base::read_small_file(found, kMaxBytes, "the config")};
}

}  // namespace lockstep::config
