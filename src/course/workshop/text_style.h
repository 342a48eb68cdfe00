#pragma once
// Colour where a person sees it: on a terminal, and not where NO_COLOR is set.

#include <string>

#include "lockstep/base/text_style.h"

namespace lockstep::workshop {

using base::TextStyle;

/// The text, safe to show, in this style where standard output is a terminal that has it.
std::string styled(const std::string& text, TextStyle style);

/// A line of it on standard output.
void say(const std::string& text, TextStyle style = TextStyle::plain);

}  // namespace lockstep::workshop
