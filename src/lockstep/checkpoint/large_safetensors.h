#pragma once
// safetensors files that are larger than memory: mapped, or written from a stream.

#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/checkpoint/safetensors.h"

namespace lockstep::checkpoint {

/// A tensor of bytes that is not in memory: `write` passes them to the sink, one part after the other.
struct StreamedBytes {
  std::string name = {};
  int64_t size = 0;
  std::function<void(const base::ByteSink& sink)> write = {};
};

/// As write_safetensors(); `last` follows the other tensors, and the checksum does not cover it.
void write_large_safetensors(const std::string& path, const Tree& tensors,
                             const std::map<std::string, std::string>& metadata, mode_t mode,
                             const StreamedBytes& last = {});

/// As read_safetensors(), but the tensors are views of the mapped file, and keep it mapped.
Tree map_safetensors(const std::shared_ptr<base::FileMap>& file, const std::string& name);

}  // namespace lockstep::checkpoint
