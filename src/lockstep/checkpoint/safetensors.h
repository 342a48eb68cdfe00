#pragma once
// safetensors, both ways: a flat dictionary of named tensors and a little text.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "lockstep/checkpoint/tree.h"

namespace lockstep {

/// Writes {"name": tensor, ...}, whole or not at all, with a checksum over the whole file among the metadata.
/// `mode` is open's.
void write_safetensors(const std::string& path, const Tree& tensors,
                       const std::map<std::string, std::string>& metadata = {}, mode_t mode = 0644);

/// InputError that names the flaw where the header, an offset or our own checksum is wrong.
Tree read_safetensors(const std::string& path);

/// The same from memory. `name` is what errors call the file; `has_checksum` is set if it has our own.
Tree read_safetensors(std::span<const uint8_t> file, const std::string& name, bool& has_checksum);

/// By its first bytes.
bool is_safetensors(std::span<const uint8_t> file);

}  // namespace lockstep
