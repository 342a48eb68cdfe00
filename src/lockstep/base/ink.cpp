#include "lockstep/base/ink.h"

#include <array>

namespace lockstep::base {

std::string in_ink(const std::string& text, Ink ink) {
  static constexpr std::array<const char*, 6> kCodes = {"",        "\x1b[32m", "\x1b[33m",
                                                        "\x1b[1m", "\x1b[2m",  "\x1b[31m"};
  if (ink == Ink::plain) return text;
  return kCodes[static_cast<size_t>(ink)] + text + "\x1b[0m";
}

}  // namespace lockstep::base
