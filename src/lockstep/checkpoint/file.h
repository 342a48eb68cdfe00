#pragma once
// Files read through a map.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::checkpoint {

/// A file's bytes, wherever they are, and what errors call the file.
struct NamedBytes {
  std::span<const uint8_t> bytes;
  std::string name;
};

/// A file's bytes, read-only. InputError where it is missing, a folder or unreadable.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  /// Good as long as this is.
  NamedBytes named() const { return {bytes(), path_}; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lockstep::checkpoint
