#pragma once
// A config as it was read: the settings, where each came from, and what is to be said of them.

#include <map>
#include <string>
#include <vector>

#include "trainer/config/settings.h"
#include "trainer/config/yaml.h"

namespace lockstep::config {

/// Where a value came from.
struct Origin {
  enum Kind { by_default, file, set } kind = by_default;
  std::string text = "default";  // "default", "configs/mnist.yaml:3:12" or "--set"
};

struct Loaded {
  Settings settings;
  std::map<std::string, Origin> origins;  // one for every key, by its full path
  std::string text;                       // what was read
  std::vector<std::string> warnings;      // keys that are set and not used, ...
  std::map<std::string, YamlNode> named;  // what was read for the keys that name rows of open tables
};

}  // namespace lockstep::config
