#pragma once
// Files read through a map.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/file_map.h"

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
