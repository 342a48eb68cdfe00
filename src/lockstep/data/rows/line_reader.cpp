#include "lockstep/data/rows/line_reader.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"

namespace lockstep::data {

ByteSource::ByteSource(const std::string& path) : path_(path) {
  const base::RegularFile file(path, "the data file");
  file_bytes_ = file.size();
  stream_ = gzdopen(::fcntl(file.number(), F_DUPFD_CLOEXEC, 0), "rb");
  if (!stream_) throw std::bad_alloc();
  gzbuffer(stream_, 128 << 10);
}

ByteSource::~ByteSource() {
  gzclose(stream_);
}

void ByteSource::check() const {
  constexpr const char* kAgain = "fetch or copy the file again";
  int code = Z_OK;
  std::string text = gzerror(stream_, &code);  // "<fd:4>: incorrect data check"
  if (const auto colon = text.find(": "); colon != std::string::npos) text.erase(0, colon + 2);
  if (code == Z_BUF_ERROR) throw InputError("the gzipped data ends early", path_, kAgain);
  if (code == Z_ERRNO) throw InputError(format("cannot read the data file: {}", text), path_, kAgain);
  if (code < 0) throw InputError(format("the gzipped data is damaged: {}", text), path_, kAgain);
}

size_t ByteSource::read(char* into, size_t size) {
  size_t filled = 0;
  while (filled < size) {
    const int got =
        gzread(stream_, into + filled, static_cast<unsigned>(std::min<size_t>(size - filled, 1 << 30)));
    if (got <= 0) break;
    filled += static_cast<size_t>(got);
  }
  if (filled < size) check();
  return filled;
}

bool ByteSource::at_end() {
  const int byte = gzgetc(stream_);
  if (byte >= 0) gzungetc(byte, stream_);
  check();
  return byte < 0;
}

int64_t ByteSource::most_bytes() const {
  constexpr int64_t kBestRatio = 1032;  // of deflate: https://zlib.net/zlib_tech.html
  const auto size = static_cast<int64_t>(file_bytes_);
  return gzdirect(stream_) ? size : size * kBestRatio;
}

namespace {

constexpr size_t kChunk = 1 << 20;
constexpr size_t kLongestLine = 64 << 20;

}  // namespace

LineReader::LineReader(const std::string& path) : source_(path), buffer_(kChunk) {
  refill();
  constexpr std::string_view kBom = "\xEF\xBB\xBF";
  if (std::string_view(buffer_.data(), end_).starts_with(kBom)) begin_ = kBom.size();
}

// Moves what is left to the front and reads on behind it; false where nothing more came.
bool LineReader::refill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == buffer_.size()) {
    if (buffer_.size() >= kLongestLine)
      throw InputError(format("a line is longer than {} MiB: is this a text file?", kLongestLine >> 20),
                       format("{}:{}", source_.path(), number_ + 1),
                       "give a CSV file whose lines end in LF or CRLF");
    buffer_.resize(2 * buffer_.size());
  }
  const size_t got = source_.read(buffer_.data() + end_, buffer_.size() - end_);
  end_ += got;
  return got > 0;
}

bool LineReader::raw_line(std::string_view& line) {
  size_t searched = 0;
  for (;;) {
    const char* from = buffer_.data() + begin_;
    const void* found = std::memchr(from + searched, '\n', end_ - begin_ - searched);
    if (found) {
      line = {from, static_cast<size_t>(static_cast<const char*>(found) - from)};
      begin_ += line.size() + 1;
      return true;
    }
    searched = end_ - begin_;
    if (refill()) continue;
    line = {buffer_.data() + begin_, end_ - begin_};  // the last line may lack its end
    begin_ = end_;
    return !line.empty();
  }
}

bool LineReader::next(std::string_view& line) {
  while (next_or_blank(line))
    if (line.find_first_not_of(" \t") != line.npos) return true;
  return false;
}

bool LineReader::next_or_blank(std::string_view& line) {
  if (!raw_line(line)) return false;
  ++number_;
  if (line.ends_with('\r')) line.remove_suffix(1);
  return true;
}

}  // namespace lockstep::data
