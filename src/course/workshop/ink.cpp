#include "course/workshop/ink.h"

#include <unistd.h>

#include "lockstep/base/files/output.h"
#include "lockstep/base/readable.h"
#include "lockstep/launch/process/terminal.h"

namespace lockstep::workshop {

std::string inked(const std::string& text, Ink ink) {
  auto safe = base::readable(text);
  return ink == Ink::plain || !launch::has_colour(STDOUT_FILENO) ? safe : base::in_ink(safe, ink);
}

void say(const std::string& text, Ink ink) {
  output::print(inked(text, ink) + "\n");
}

}  // namespace lockstep::workshop
