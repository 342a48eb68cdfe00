#pragma once
// A run's folder holds files and one folder: what is in the place of one is found before anything trains.

#include <filesystem>

namespace lockstep::run_folder {

/// Whatever it is, a link that leads nowhere too; what cannot be looked at is taken to be there.
bool is_there(const std::filesystem::path& path);

/// An InputError where one of a run's files is there and is a folder, a pipe, a device, or cannot be read.
void check_files(const std::filesystem::path& folder);

}  // namespace lockstep::run_folder
