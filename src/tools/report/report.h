#pragma once
// One run, or several side by side, as one HTML file that needs nothing else.

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::report {

/// The file's text. InputError where a folder is not a run folder.
std::string report(const std::vector<std::filesystem::path>& folders);

}  // namespace lockstep::report
