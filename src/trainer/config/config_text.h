#pragma once
// A config's text, from the working directory or LOCKSTEP_HOME.

#include <string>

namespace lockstep::config {

/// A file as it came: its name is for messages alone.
struct ConfigText {
  std::string name;
  std::string text;
};

/// The config file's text, looked for under the working directory, then under LOCKSTEP_HOME; of a run's
/// folder its config.yaml. Anything but a regular file of at most 1 MB is an InputError.
ConfigText read_config_text(const std::string& path);

}  // namespace lockstep::config
