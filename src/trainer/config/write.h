#pragma once
// Settings back to YAML: the resolved config.yaml of a run, and what `lockstep config` prints.

#include <map>
#include <string>

#include "trainer/config/loaded.h"

namespace lockstep::config {

/// Every key with its value; load_settings() reads it back to the same settings. With origins, each line ends
/// in a comment that says where the value came from.
std::string to_yaml(const Settings& settings, const std::map<std::string, Origin>& origins = {});

/// The keys alone that were given another value than their default, with where it came from: a config again.
std::string changed_yaml(const Loaded& loaded);

}  // namespace lockstep::config
