#pragma once
// A text file line by line in bounded memory: LF or CRLF, a BOM skipped, gzip understood.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/rows/byte_source.h"

namespace lockstep::data {

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

/// Cuts a line into fields, with quotes ("a ""b""") understood. The fields point into the line or into
/// `unquoted`. Throws InputError(what, where) for a quote that does not end.
void split_fields(std::string_view line, char delimiter, const LineReader& lines,
                  std::vector<std::string_view>& fields, std::string& unquoted);

}  // namespace lockstep::data
