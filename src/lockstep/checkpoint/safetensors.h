#pragma once
// Reads and writes safetensors files: named tensors and string metadata.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "lockstep/checkpoint/tree.h"

namespace lockstep {

/// Writes {"name": tensor, ...} atomically, with a checksum over the whole file in the metadata. `mode`: the
/// file's permission bits.
void write_safetensors(const std::string& path, const Tree& tensors,
                       const std::map<std::string, std::string>& metadata = {}, mode_t mode = 0644);

/// Reads a file. Throws InputError with the reason if the header, an offset or the checksum is invalid.
Tree read_safetensors(const std::string& path);

/// The same from memory. Errors call the file `name`; `has_checksum`: whether it has lockstep's checksum.
Tree read_safetensors(std::span<const uint8_t> file, const std::string& name, bool& has_checksum);

/// Whether the first bytes are those of a safetensors file.
bool is_safetensors(std::span<const uint8_t> file);

}  // namespace lockstep
