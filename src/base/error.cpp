#include "base/error.h"

namespace lockstep {

std::string describe(const std::exception& error) {
  std::string text = error.what();
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    if (!known->where().empty()) text += "\n  where: " + known->where();
    if (!known->hint().empty()) text += "\n  to do: " + known->hint();
  }
  return text;
}

}  // namespace lockstep
