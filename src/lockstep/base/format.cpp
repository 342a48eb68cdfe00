// The one file with fmt's implementation in it.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

#include "lockstep/base/format.h"

namespace lockstep {

std::string vformat(fmt::string_view text, fmt::format_args args) {
  return fmt::vformat(text, args);
}

}  // namespace lockstep
