#pragma once
// Files out of a zip archive: each whole or not at all, its checksum right.

#include <string>

namespace lockstep::checkpoint {

/// Is the file what the archive holds under that name? InputError where the archive is none, or lacks it.
bool is_unpacked(const std::string& archive, const std::string& member, const std::string& path);

/// Writes it there. Nothing is left where the archive is damaged or there is no room.
void unpack(const std::string& archive, const std::string& member, const std::string& path);

}  // namespace lockstep::checkpoint
