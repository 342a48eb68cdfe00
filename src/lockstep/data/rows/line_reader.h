#pragma once
// A text file line by line in bounded memory: LF or CRLF, with or without a BOM, gzipped or not.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

struct gzFile_s;  // NOLINT(readability-identifier-naming): a name of zlib

namespace lockstep::data {

/// A file's bytes, plain or gzipped (by its content), with the gzip checksum verified. Errors are InputErrors
/// with the file and the flaw.
class ByteSource {
 public:
  explicit ByteSource(const std::string& path);
  ByteSource(ByteSource&&) = delete;
  ~ByteSource();

  /// Fills `into` with `size` bytes, or with fewer at the end of the data.
  size_t read(char* into, size_t size);
  /// True once nothing is left; a gzipped file is then verified to its last byte.
  bool at_end();
  /// An upper limit of the data's size.
  int64_t most_bytes() const;
  const std::string& path() const { return path_; }

 private:
  void check() const;

  std::string path_;
  size_t file_bytes_;
  gzFile_s* stream_;
};

class LineReader {
 public:
  explicit LineReader(const std::string& path);
  /// The next line that is not blank, without its end; false at the file's end. Valid until the next call.
  bool next(std::string_view& line);
  /// The same for blank lines too.
  bool next_or_blank(std::string_view& line);
  /// The line's number, from 1.
  int64_t number() const { return number_; }

 private:
  bool raw_line(std::string_view& line);
  bool refill();

  ByteSource source_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t number_ = 0;
};

}  // namespace lockstep::data
