#pragma once
// Files written whole or not at all, and files read through a map.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Takes bytes in order and throws where it can't.
using ByteSink = std::function<void(const void* data, size_t size)>;

/// Calls write(sink) on a temporary file beside `path`, then fsync, rename, fsync of the folder. If anything
/// throws, the temporary file is removed and what was at `path` is untouched.
void write_whole(const std::string& path, const std::function<void(const ByteSink&)>& write);

/// Is it one of write_whole's temporary files?
bool is_leftover(const std::string& filename);

/// A file's bytes, read-only. InputError where it is missing, a folder or unreadable.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lockstep
