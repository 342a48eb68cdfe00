#include "course/workshop/text_style.h"

#include <unistd.h>

#include "lockstep/base/files/output.h"
#include "lockstep/base/readable.h"
#include "lockstep/launch/process/terminal.h"

namespace lockstep::workshop {

std::string styled(const std::string& text, TextStyle style) {
  auto safe = base::readable(text);
  return style == TextStyle::plain || !launch::has_colour(STDOUT_FILENO) ? safe
                                                                         : base::with_style(safe, style);
}

void say(const std::string& text, TextStyle style) {
  output::print(styled(text, style) + "\n");
}

}  // namespace lockstep::workshop
