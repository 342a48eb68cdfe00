#pragma once
// Writes files that torch.load(path, weights_only=True) reads, and reads files that torch.save writes. Never
// executes code from a file.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "lockstep/checkpoint/tree.h"

namespace lockstep {

/// Writes a .pt file to `sink`. The zip archive's comment, at the end, has a checksum over the whole file.
void write_pt(const std::function<void(const void* data, size_t size)>& sink, const Tree& tree);

/// Writes the file atomically: temporary file, fsync, rename.
void write_pt(const std::string& path, const Tree& tree);

/// Reads and verifies a .pt or safetensors file. Tensors are on the CPU, whatever device they were saved
/// from. Throws InputError, with file and reason, if the file is damaged, unsupported or unsafe.
Tree read_pt(const std::string& path);

/// The same from memory. Errors call the file `name`.
Tree read_pt(std::span<const uint8_t> bytes, const std::string& name);

/// The kind of checksum in a checkpoint file. With none, a flipped bit is not detected.
enum class Checksum { none, each_record, whole_file };

/// The content of a file, its format and its checksum.
struct CheckpointFile {
  Tree tree;
  std::string format;  // "pt" or "safetensors"
  Checksum checksum = Checksum::none;
};

/// Like read_pt().
CheckpointFile open_checkpoint_file(const std::string& path);
Tree read_checkpoint_file(const std::string& path);

}  // namespace lockstep
