#pragma once
// Files read through a map.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/files/file_map.h"
#include "lockstep/checkpoint/cursor.h"

namespace lockstep::checkpoint {

/// A file's bytes, wherever they are, and what errors call the file.
struct NamedBytes {
  std::span<const uint8_t> bytes;
  std::string name;
};

/// What errors call a file, and what they advise.
struct FileWords {
  const char* what = "the checkpoint";
  const char* empty = "the file is empty";
  const char* another = "name a .pt or .safetensors file, or a run's folder";
  const char* again = kCopyAgain;
};

/// A file's bytes, read-only. InputError where it is missing, a folder, empty or unreadable.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path, const FileWords& words = {});

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const {
    return {reinterpret_cast<const uint8_t*>(map_->data()), map_->size()};
  }
  /// What was read from it, unless the file became shorter meanwhile: then an Error.
  template <class Value>
  Value whole(Value value) const {
    map_->refuse_cut();
    return value;
  }
  /// Good as long as this is.
  NamedBytes named() const { return {bytes(), path_}; }

 private:
  std::string path_;
  std::optional<base::FileMap> map_;
};

}  // namespace lockstep::checkpoint
