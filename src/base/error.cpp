#include "base/error.h"

#include <new>

#include "base/memory.h"

namespace lockstep {

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const std::length_error*>(&error))
    return true;
  const std::string_view text = error.what();  // c10's allocators throw errors of their own
  return text.find("can't allocate memory") != text.npos || text.find("out of memory") != text.npos;
}

std::string describe(const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find("\nException raised from "));
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    if (!known->where().empty()) text += "\n  where: " + known->where();
    if (!known->hint().empty()) text += "\n  to do: " + known->hint();
  } else if (is_out_of_memory(error)) {
    text = "there is not enough memory (" + text + ")\n  to do: " + kMoreMemory;
  }
  return text;
}

ExitStatus exit_status(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known ? known->exit_status() : kFailed;
}

}  // namespace lockstep
