#pragma once
// The table of keys for editors (JSON Schema, draft 2020-12) and for people (the reference page).

#include <string>

namespace lockstep::config {

/// A JSON Schema that accepts what load_settings() accepts, key by key.
std::string json_schema();

/// The reference of all keys in Markdown, section by section: docs/config.md holds it.
std::string reference();

}  // namespace lockstep::config
