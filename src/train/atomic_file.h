#pragma once
// A file that is either the old one or the new one, never half of one.

#include <filesystem>
#include <string>

namespace lockstep::train {

/// Writes beside the file, syncs and renames. Throws Error with the system's reason.
void replace_file(const std::filesystem::path& path, const std::string& text);

/// The whole file as text; throws InputError when it cannot be read.
std::string read_text(const std::filesystem::path& path);

}  // namespace lockstep::train
