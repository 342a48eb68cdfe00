#pragma once
// A text file line by line in bounded memory: LF or CRLF, a BOM skipped, gzip understood.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/files/file.h"

namespace lockstep::data {

// A file's bytes, plain or gzipped (told by its content), with the gzip checksum checked.

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

class LineReader {
 public:
  explicit LineReader(const std::string& path);
  /// The next line that is not blank, without its end; false at the end of the file. Valid until the next
  /// call.
  bool next(std::string_view& line);
  /// The same for blank lines too.
  bool next_of_all(std::string_view& line);
  /// The line's number, from 1.
  int64_t number() const { return number_; }
  /// "file:line".
  std::string where() const;

 private:
  bool raw_line(std::string_view& line);
  bool refill();

  ByteSource source_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t number_ = 0;
};

}  // namespace lockstep::data
