#pragma once
// Colours of text on a terminal. Whether there are any is for launch/terminal.h to say.

#include <string>

namespace lockstep::base {

enum class Ink { plain, good, bad, strong, faint, wrong };

/// The text between the codes of this ink; plain has none.
std::string in_ink(const std::string& text, Ink ink);

}  // namespace lockstep::base
