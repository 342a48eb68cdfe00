#include "lockstep/workshop/ink.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/output.h"
#include "lockstep/base/readable.h"

namespace lockstep::workshop {
namespace {

bool has_colour() {
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  if (refused && *refused) return false;
  return ::isatty(STDOUT_FILENO) == 1 && terminal && std::string_view(terminal) != "dumb";
}

}  // namespace

std::string inked(const std::string& text, Ink ink) {
  static constexpr std::array<const char*, 5> kCodes = {"", "\x1b[32m", "\x1b[33m", "\x1b[1m", "\x1b[2m"};
  auto safe = base::readable(text);
  if (ink == Ink::plain || !has_colour()) return safe;
  return kCodes[static_cast<size_t>(ink)] + safe + "\x1b[0m";
}

void say(const std::string& text, Ink ink) {
  output::print(inked(text, ink) + "\n");
}

}  // namespace lockstep::workshop
