#include "lockstep/config/write.h"

#include "lockstep/base/format.h"
#include "lockstep/config/value.h"

namespace lockstep::config {

std::string to_yaml(const Settings& settings, const std::map<std::string, Origin>& origins) {
  std::string text;
  std::string section;
  for (const Key& key : keys()) {
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

}  // namespace lockstep::config
