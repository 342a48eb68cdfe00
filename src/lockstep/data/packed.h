#pragma once
// Numbers and strings laid end to end in bytes, to pass between processes of one node.

#include <cstdint>
#include <cstring>
#include <string>

namespace lockstep::data {

class Packer {
 public:
  Packer& number(int64_t value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Packer& string(const std::string& value) {
    number(static_cast<int64_t>(value.size()));
    text_ += value;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Reads back what a Packer of the same job wrote; does not own the bytes.
class Unpacker {
 public:
  Unpacker(const char* data, int64_t size) : at_(data), end_(data + size) {}
  int64_t number() {
    int64_t value = 0;
    if (end_ - at_ >= static_cast<int64_t>(sizeof value)) std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string string() {
    const int64_t size = number();
    std::string value(at_, size);
    at_ += size;
    return value;
  }

 private:
  const char* at_;
  const char* end_;
};

}  // namespace lockstep::data
