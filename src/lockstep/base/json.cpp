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

}  // namespace lockstep::base
