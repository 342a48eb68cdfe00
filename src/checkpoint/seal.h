#pragma once
// The seal at the end of a lockstep .pt file: a checksum over every byte before it, kept in the zip archive's
// comment, where other readers pass over it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/whole_file.h"

namespace lockstep {

/// Passes an archive on to another sink with its end sealed. finish() writes what was held back.
class SealingSink {
 public:
  explicit SealingSink(ByteSink sink) : sink_(std::move(sink)) {}
  void write(const void* data, size_t size);
  void finish();

 private:
  void pass_on(const void* data, size_t size);

  ByteSink sink_;
  std::string held_;  // the end of the central directory, once all is written
  uint32_t crc_ = 0;
};

enum class Seal { missing, whole, broken };

/// Does the file carry a seal, and does it hold?
Seal check_seal(std::span<const uint8_t> file);

uint32_t crc32_of(std::span<const uint8_t> bytes, uint32_t so_far = 0);

}  // namespace lockstep
