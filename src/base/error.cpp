#include "base/error.h"

namespace lockstep {

std::string describe(const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find("\nException raised from "));
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    if (!known->where().empty()) text += "\n  where: " + known->where();
    if (!known->hint().empty()) text += "\n  to do: " + known->hint();
  }
  return text;
}

ExitStatus exit_status(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known ? known->exit_status() : kFailed;
}

}  // namespace lockstep
