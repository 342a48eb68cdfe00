#pragma once
// Any text as one word of a shell script.

#include <string>
#include <vector>

namespace lockstep::cluster {

/// The text as one word of bash, on one line: what it stands for is exactly these bytes.
std::string quoted(const std::string& text);

/// Each of them, with a blank between two.
std::string quoted(const std::vector<std::string>& words);

}  // namespace lockstep::cluster
