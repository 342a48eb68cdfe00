#pragma once
// A file's bytes, plain or gzipped (told by its content), with the gzip checksum checked.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/files/file.h"

namespace lockstep::data {

/// Errors are InputErrors that name the file and what is wrong with it.
class ByteSource {
 public:
  explicit ByteSource(const std::string& path);
  ~ByteSource();
  ByteSource(ByteSource&&) noexcept;

  /// Fills `into` with `size` bytes, or with fewer where the data ends there.
  size_t read(char* into, size_t size);
  /// True once nothing is left; a gzipped file has then been checked to its last byte.
  bool at_end();
  /// More bytes than this the file cannot hold, compressed or not.
  int64_t most_bytes() const;
  const std::string& path() const { return path_; }

 private:
  struct Gzip;
  size_t read_some(char* into, size_t size);
  size_t inflate_some(char* into, size_t size);

  std::string path_;
  base::RegularFile file_;
  std::unique_ptr<Gzip> gzip_;  // null for a plain file
  int peeked_ = -1;             // a byte that at_end() read ahead
};

}  // namespace lockstep::data
