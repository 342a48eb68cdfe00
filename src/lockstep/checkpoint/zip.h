#pragma once
// The directory of a zip archive, trusting nothing: every name, size and offset is checked against the file.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

struct ZipRecord {
  std::string name;
  uint32_t crc32 = 0;
  std::span<const uint8_t> data;  // as it lies in the file
  bool compressed = false;
};

struct ZipArchive {
  std::vector<ZipRecord> records;
  std::string comment;
};

/// InputError for what is damaged or encrypted. The data's checksums are not looked at here.
ZipArchive read_zip(std::span<const uint8_t> file, const std::string& path);

/// Does the file begin as a zip archive does?
bool is_zip(std::span<const uint8_t> file);

// Files out of a zip archive: each whole or not at all, its checksum right.

/// Is the file what the archive holds under that name? InputError where the archive is none, or lacks it.
bool is_unpacked(const std::string& archive, const std::string& member, const std::string& path);

/// Writes it there. Nothing is left where the archive is damaged or there is no room.
void unpack(const std::string& archive, const std::string& member, const std::string& path);

}  // namespace lockstep::checkpoint
