#pragma once
// Texts that other programs print, taken apart.

#include <string>
#include <vector>

namespace lockstep::base {

/// Without the blanks and line ends around it.
std::string trimmed(const std::string& text);

/// What stands between the signs; "a,,b" has an empty part, and nothing follows a sign at the end.
std::vector<std::string> split(const std::string& text, char sign);

}  // namespace lockstep::base
