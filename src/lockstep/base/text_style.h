#pragma once
// Colours of text on a terminal. Whether there are any is for launch/terminal.h to say.

#include <string>

namespace lockstep::base {

enum class TextStyle { plain, good, bad, strong, faint, wrong };

/// The text between the codes of this style; plain has none.
std::string with_style(const std::string& text, TextStyle style);

}  // namespace lockstep::base
