#include "trainer/config/config_text.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/nearest_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"

namespace lockstep::config {
namespace {

constexpr size_t kMaxBytes = 1'000'000;
constexpr const char* kConfigs = "configs";  // where those lie that ship

// "mnist" and "mnist.yaml" are configs/mnist.yaml
std::string meant_config(const std::string& path) {
  auto near = base::did_you_mean_file(path);
  if (!near.empty() || path.empty() || std::filesystem::path(path).has_parent_path()) return near;
  const auto shipped = (std::filesystem::path(kConfigs) / path).string();
  std::error_code none;
  if (std::filesystem::is_regular_file(base::find_path(shipped), none))
    return format("did you mean {}? ", shipped);
  return base::did_you_mean_file(shipped);
}

// of a run's folder, what it ran
std::string config_in(const std::string& path) {
  std::error_code none;
  const auto inside = std::filesystem::path(path) / "config.yaml";
  return !path.empty() && std::filesystem::exists(inside, none) ? inside.string() : path;
}

void check_there(const std::string& path) {
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed))
    throw InputError("this folder holds no config.yaml", path,
                     "pass a config file, or the folder of a run, like runs/mnist");
  if (std::filesystem::status(path, failed).type() != std::filesystem::file_type::not_found) return;
  if (const auto near = meant_config(path); !near.empty())
    throw InputError(format("the config cannot be read: {}", std::strerror(ENOENT)), path,
                     near + "or check the path and its permissions");
}

}  // namespace

ConfigText read_config_text(const std::string& path) {
  const std::string found = config_in(base::find_path(path));
  check_there(found);
  return {found, base::read_small_file(found, kMaxBytes, "the config")};
}

}  // namespace lockstep::config
