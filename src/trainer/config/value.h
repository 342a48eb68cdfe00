#pragma once
// One value: from a node into the field of its key, and back to YAML.

#include <map>
#include <string>

#include "trainer/config/keys.h"
#include "trainer/config/yaml.h"

namespace lockstep::config {

/// Throws InputError when the node does not hold what the key expects. False when it held the key's word
/// ("default"), which leaves the field as it is by default.
bool read_value(const Key& key, const YamlNode& node, const std::map<std::string, std::string>& environment,
                Settings& settings);

/// Says that the node names no row of the key's table.
[[noreturn]] void refuse_row(const Key& key, const YamlNode& node);

/// The field as YAML that read_value() reads back to the same.
std::string value_text(const Key& key, const Settings& settings);

/// A text as a YAML scalar, quoted where any YAML reader could take it for something else.
std::string yaml_text(const std::string& text);

}  // namespace lockstep::config
