#pragma once
// Text that was made elsewhere, safe to put before a person: no terminal obeys it, and it has an end.

#include <string>
#include <string_view>

namespace lockstep::base {

/// Lines and tabs stay, and every letter of valid UTF-8; what a terminal would obey (escape codes, the C1
/// controls, marks that turn the direction of writing) and what is no UTF-8 becomes \xNN. The middle of a
/// very long line is left out.
std::string readable(std::string_view text);

}  // namespace lockstep::base
