#pragma once
// Reads little-endian numbers and runs of bytes, and never past the end.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {

/// What to do about a damaged file.
inline constexpr const char* kCopyAgain = "copy the file again, or take an earlier checkpoint";

class Cursor {
 public:
  Cursor(std::span<const uint8_t> bytes, std::string file) : bytes_(bytes), file_(std::move(file)) {}

  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }
  const std::string& file() const { return file_; }

  std::span<const uint8_t> take(uint64_t count) {
    if (count > left()) fail("the file is damaged: it ends too early");
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }
  void skip(uint64_t count) { take(count); }

  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string_view text(uint64_t count) {
    const auto taken = take(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  /// Up to the next newline, which is skipped.
  std::string_view line() {
    const auto rest = bytes_.subspan(position_);
    const auto* end = static_cast<const uint8_t*>(std::memchr(rest.data(), '\n', rest.size()));
    if (!end) fail("the file is damaged: a line does not end");
    const auto found = text(static_cast<size_t>(end - rest.data()));
    ++position_;
    return found;
  }

  [[noreturn]] void fail(const std::string& what, const std::string& hint = kCopyAgain) const {
    throw InputError(what, file_, hint);
  }

 private:
  std::span<const uint8_t> bytes_;
  std::string file_;
  size_t position_ = 0;
};

}  // namespace lockstep::checkpoint
