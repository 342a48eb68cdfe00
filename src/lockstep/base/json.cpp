#include "lockstep/base/json.h"

namespace lockstep::base {

bool is_shallow_json(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char sign = text[i];
    if (quoted && sign == '\\') {
      ++i;  // whatever stands behind it
    } else if (sign == '"') {
      quoted = !quoted;
    } else if (!quoted && (sign == '[' || sign == '{')) {
      if (++depth > kDeepestJson) return false;
    } else if (!quoted && (sign == ']' || sign == '}')) {
      --depth;
    }
  }
  return true;
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
std::string what_is_wrong(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const auto name = text.find("] ");
  return text.starts_with('[') && name != text.npos ? text.substr(name + 2) : text;
}

}  // namespace lockstep::base
