#pragma once
// CRC-32C (Castagnoli, RFC 3720), as TensorBoard's record files want it.

#include <cstdint>
#include <string_view>

namespace lockstep::run_folder {

uint32_t crc32c(std::string_view bytes);

/// Rotated and offset, so that a checksum of bytes that hold checksums stays a good one (TFRecord).
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep::run_folder
