#include "lockstep/base/text_style.h"

#include <array>

namespace lockstep::base {

std::string with_style(const std::string& text, TextStyle style) {
  static constexpr std::array<const char*, 6> kCodes = {"",        "\x1b[32m", "\x1b[33m",
                                                        "\x1b[1m", "\x1b[2m",  "\x1b[31m"};
  if (style == TextStyle::plain) return text;
  return kCodes[static_cast<size_t>(style)] + text + "\x1b[0m";
}

}  // namespace lockstep::base
