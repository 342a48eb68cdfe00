#pragma once
// Numbers and strings laid end to end in bytes, to pass between processes of one node.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/base/files/file.h"

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

/// Reads back what a Packer wrote; does not own the bytes. Past their end it gives zeros and empty strings,
/// and is failed().
class Unpacker {
 public:
  Unpacker(const char* data, int64_t size) : at_(data), end_(data + size) {}
  int64_t number() {
    int64_t value = 0;
    if (const char* at = take(sizeof value)) std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::string string() {
    const int64_t size = number();
    const char* at = take(size);
    return at ? std::string(at, size) : "";
  }
  bool failed() const { return failed_; }

 private:
  const char* take(int64_t size) {
    failed_ = failed_ || size < 0 || size > end_ - at_;
    return failed_ ? nullptr : std::exchange(at_, at_ + size);
  }

  const char* at_;
  const char* end_;
  bool failed_ = false;
};

// Tensors that look into a file in memory.

/// A tensor at `place`, which keeps the map alive.
at::Tensor view_of(std::shared_ptr<base::FileMap> map, char* place, at::IntArrayRef shape,
                   at::ScalarType type);

}  // namespace lockstep::data
