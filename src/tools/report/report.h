#pragma once
// A run told on one page, or several side by side: one HTML file that needs nothing else.

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::report {

/// The file's text. InputError where a folder is none of a run's.
std::string report(const std::vector<std::filesystem::path>& folders);

}  // namespace lockstep::report
