#pragma once
// A file descriptor that closes itself.

#include <unistd.h>

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
  /// False where the system reports an error only now, as NFS does with a full disk.
  bool close() { return number_ < 0 || ::close(release()) == 0; }

 private:
  int number_;
};

// Bytes to a descriptor, whatever interrupts.

/// False, with the reason in errno, where the rest cannot be written.
bool write_all(int descriptor, std::string_view bytes);

}  // namespace lockstep::base
