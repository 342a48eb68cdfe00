#pragma once
// A file descriptor that closes itself.

#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace lockstep::base {

class Descriptor {
 public:
  /// Takes over what open(), socket() or the like returned, a failure too.
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }
  int release() { return std::exchange(number_, -1); }
  /// False if the system reports an error only now, as NFS does for a full disk.
  bool close() { return number_ < 0 || ::close(release()) == 0; }

 private:
  int number_;
};

/// Writes all bytes; false, with the reason in errno, if it cannot.
inline bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = EIO;  // some file systems report a full disk like this
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace lockstep::base
