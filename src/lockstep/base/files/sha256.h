#pragma once
// SHA-256 (FIPS 180-4), to tell whole files from damaged ones.

#include <array>
#include <cstdint>
#include <string>

namespace lockstep::base {

class Sha256 {
 public:
  void add(const void* data, size_t size);
  /// The digest as 64 hex digits; nothing may be added afterwards.
  std::string hex();

 private:
  void block(const uint8_t* bytes);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> buffer_{};
  uint64_t total_ = 0;
};

/// Of a file's bytes as they are on disk; throws InputError where it cannot be read.
std::string sha256_of_file(const std::string& path);

}  // namespace lockstep::base
