#pragma once
// A config's text, from the working directory or LOCKSTEP_HOME.

#include <map>
#include <string>

#include "trainer/config/load.h"

namespace lockstep::config {

/// A file as it came: its name is for messages alone.
struct ConfigText {
  std::string name;
  std::string text;
};

/// The config file's text, looked for under the working directory, then under LOCKSTEP_HOME; of a run's
/// folder its config.yaml. Anything but a regular file of at most 1 MB is an InputError.
ConfigText read_config_text(const std::string& path);

// Settings back to YAML: the resolved config.yaml of a run, and what `lockstep config` prints.

/// Every key with its value; load_settings() reads it back to the same settings. With origins, each line ends
/// in a comment that says where the value came from.
std::string to_yaml(const Settings& settings, const std::map<std::string, Origin>& origins = {});

/// The keys alone that were given another value than their default, with where it came from: a config again.
std::string changed_yaml(const Loaded& loaded);

// The table of keys for editors (JSON Schema, draft 2020-12) and for people (the reference page).

/// A JSON Schema that accepts what load_settings() accepts, key by key.
std::string json_schema();

/// The reference of all keys in Markdown, section by section: docs/reference/config.md holds it.
std::string reference();

}  // namespace lockstep::config
