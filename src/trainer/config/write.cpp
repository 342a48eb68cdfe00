#include "trainer/config/write.h"

#include "lockstep/base/format.h"
#include "trainer/config/chosen.h"
#include "trainer/config/value.h"

namespace lockstep::config {

namespace {

using Origins = std::map<std::string, Origin>;

template <class Takes>
std::string yaml_of(const Settings& settings, const Origins& origins, const Takes& takes) {
  std::string text;
  std::string section;
  for (const Key& key : keys()) {
    if (!takes(key)) continue;
    if (key.section() != section) {
      section = key.section();
      text += section + ":\n";
    }
    const std::string line = format("  {}: {}", key.name(), value_text(key, settings));
    const auto origin = origins.find(key.path);
    text += origin == origins.end() ? line + "\n" : format("{:<38}  # {}\n", line, origin->second.text);
  }
  return text;
}

}  // namespace

std::string to_yaml(const Settings& settings, const Origins& origins) {
  return yaml_of(settings, origins, [](const Key&) { return true; });
}

std::string changed_yaml(const Loaded& loaded) {
  const Settings defaults;
  return yaml_of(loaded.settings, loaded.origins, [&](const Key& key) {
    if (loaded.origins.at(key.path).kind == Origin::by_default) return false;
    const auto value = value_text(key, loaded.settings);
    const auto* meant = chosen_default(loaded.settings, key.path);
    return value != value_text(key, defaults) && (!meant || value != *meant);
  });
}

}  // namespace lockstep::config
