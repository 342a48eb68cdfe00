#include "lockstep/data/rows/line_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::data {

struct ByteSource::Gzip {
  Gzip() : input(64 << 10) { inflateInit2(&stream, 15 + 16); }
  ~Gzip() { inflateEnd(&stream); }
  z_stream stream{};
  std::vector<Bytef> input;
  bool done = false;
};

ByteSource::ByteSource(const std::string& path) : path_(path), file_(path, "the data file") {
  unsigned char magic[2];
  if (file_.read_at(0, magic, 2) == 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
    gzip_ = std::make_unique<Gzip>();
  }
}

ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource::~ByteSource() = default;

size_t ByteSource::inflate_some(char* into, size_t size) {
  auto& stream = gzip_->stream;
  stream.next_out = reinterpret_cast<Bytef*>(into);
  stream.avail_out = static_cast<uInt>(std::min<size_t>(size, 1 << 30));
  const auto wanted = stream.avail_out;
  while (stream.avail_out == wanted && !gzip_->done) {
    if (stream.avail_in == 0) {
      stream.next_in = gzip_->input.data();
      stream.avail_in = file_.read(gzip_->input.data(), gzip_->input.size());
      if (stream.avail_in == 0)
        throw InputError("the gzipped data ends early", path_, "fetch or copy the file again");
    }
    const int result = ::inflate(&stream, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      // Members may follow one another (RFC 1952, 2.2); anything else after the data is an error.
      char next;
      if (stream.avail_in == 0 && file_.read(&next, 1) == 1) {
        gzip_->input[0] = next;
        stream.next_in = gzip_->input.data();
        stream.avail_in = 1;
      }
      gzip_->done = stream.avail_in == 0;
      if (!gzip_->done && stream.next_in[0] != 0x1f) {
        throw InputError("there is something else after the gzipped data", path_,
                         "fetch or copy the file again");
      }
      if (!gzip_->done) inflateReset(&stream);
    } else if (result != Z_OK) {
      throw InputError(format("the gzipped data is damaged: {}", stream.msg ? stream.msg : zError(result)),
                       path_, "fetch or copy the file again");
    }
  }
  return wanted - stream.avail_out;
}

size_t ByteSource::read_some(char* into, size_t size) {
  return gzip_ ? inflate_some(into, size) : file_.read(into, size);
}

size_t ByteSource::read(char* into, size_t size) {
  size_t filled = 0;
  if (size > 0 && peeked_ >= 0) {
    into[filled++] = static_cast<char>(std::exchange(peeked_, -1));
  }
  while (filled < size) {
    const size_t got = read_some(into + filled, size - filled);
    if (got == 0) break;
    filled += got;
  }
  return filled;
}

bool ByteSource::at_end() {
  if (peeked_ >= 0) return false;
  char byte;
  if (read_some(&byte, 1) == 0) return true;
  peeked_ = static_cast<unsigned char>(byte);
  return false;
}

int64_t ByteSource::most_bytes() const {
  constexpr int64_t kBestRatio = 1032;  // of deflate: https://zlib.net/zlib_tech.html
  const auto size = static_cast<int64_t>(file_.size());
  return gzip_ ? size * kBestRatio : size;
}

namespace {

constexpr size_t kChunk = 1 << 20;
constexpr size_t kLongestLine = 64 << 20;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t") == std::string_view::npos;
}

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
    if (buffer_.size() >= kLongestLine) {
      throw InputError(format("a line of more than {} MiB: not a text file?", kLongestLine >> 20),
                       format("{}:{}", source_.path(), number_ + 1),
                       "give a CSV file whose lines end in LF or CRLF");
    }
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
  while (next_of_all(line)) {
    if (!is_blank(line)) return true;
  }
  return false;
}

bool LineReader::next_of_all(std::string_view& line) {
  if (!raw_line(line)) return false;
  ++number_;
  if (line.ends_with('\r')) line.remove_suffix(1);
  return true;
}

std::string LineReader::where() const {
  return format("{}:{}", source_.path(), number_);
}

}  // namespace lockstep::data
