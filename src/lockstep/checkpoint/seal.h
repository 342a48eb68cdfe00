#pragma once
// The seal of a file of ours, where other readers pass over it: of a .pt file a checksum over every byte
// before it, in the zip archive's comment; of a safetensors file one over every byte but its own digits, in
// the metadata.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/base/files/whole_file.h"

namespace lockstep::checkpoint {

/// Passes an archive on to another sink with its end sealed. finish() writes what was held back.
class SealingSink {
 public:
  explicit SealingSink(base::ByteSink sink) : sink_(std::move(sink)) {}
  void write(const void* data, size_t size);
  void finish();

 private:
  void pass_on(const void* data, size_t size);

  base::ByteSink sink_;
  std::string held_;  // the end of the central directory, once all is written
  uint32_t crc_ = 0;
};

enum class Seal { missing, whole, broken };

/// Does the file carry a seal, and does it hold?
Seal check_seal(std::span<const uint8_t> file);

/// The first entry of "__metadata__", and what its value is while the checksum is made.
inline constexpr const char* kSafetensorsSeal = "lockstep_crc32";
inline constexpr const char* kUnsealed = "00000000";

/// Puts the checksum into a file's beginning that holds kUnsealed.
void seal_safetensors(std::string& beginning, uint32_t crc32);

Seal check_safetensors_seal(std::span<const uint8_t> file);

uint32_t crc32_of(std::span<const uint8_t> bytes, uint32_t so_far = 0);

}  // namespace lockstep::checkpoint
