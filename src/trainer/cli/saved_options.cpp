#include "trainer/cli/saved_options.h"

#include <filesystem>

#include "lockstep/base/paths.h"
#include "trainer/cli/version.h"

namespace lockstep::cli {
namespace {

// By its name where that is enough: rank 0 alone has to see a run's folder.
bool names_config(const std::string& path) {
  std::error_code none;
  return path.ends_with(".yaml") || path.ends_with(".yml") ||
         std::filesystem::is_regular_file(base::find_path(path), none);
}

}  // namespace

void SavedOptions::add_to(Options& options) {
  options.positional("CONFIG.yaml|RUN_FOLDER", command_.config,
                     "the config file; or a run's folder, for its config and its checkpoint");
  options.add(
      "checkpoint", checkpoint_, "PATH",
      "a run's folder (its best checkpoint, else its newest), a .pt file of lockstep's or Python's, or "
      "safetensors");
  options.add("set", command_.sets, "KEY=VALUE", "override a key; may be given again");
  options.add("launcher", command_.launcher, "NAME", "override the detection; none = alone");
}

std::string SavedOptions::checkpoint() const {
  if (!checkpoint_.empty()) return checkpoint_;
  return names_config(command_.config) ? "" : command_.config;
}

train::Command SavedOptions::command(const std::string& name) const {
  auto command = command_;
  command.elsewhere = !names_config(command_.config);
  command.program = version_line();
  command.whole_model = true;
  command.must_match = {{"the command", name}, {"--checkpoint", checkpoint()}};
  return command;
}

}  // namespace lockstep::cli
