#pragma once
// Folders written whole or not at all.

#include <functional>
#include <string>

namespace lockstep::base {

/// InputError, before the work, where write_whole_folder() could not put a folder: something is at `path`
/// that is no empty folder, or there is none to put it in. Errors end in `hint`.
void check_new_folder(const std::string& path, const std::string& hint);

/// Calls write(folder) for a new folder beside `path`, which becomes `path` when all is there. If anything
/// throws, it is removed and nothing is at `path`.
void write_whole_folder(const std::string& path, const std::string& hint,
                        const std::function<void(const std::string& folder)>& write);

}  // namespace lockstep::base
