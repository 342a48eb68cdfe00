#pragma once
// The .pt format: what torch.load(path, weights_only=True) reads is written, what torch.save writes is read,
// and nothing in a file is ever executed.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "lockstep/checkpoint/tree.h"

namespace lockstep {

/// The bytes of a .pt file. Its end carries a checksum over the whole file, in the zip archive's comment.
void write_pt(const std::function<void(const void* data, size_t size)>& sink, const Tree& tree);

/// Into a file, whole or not at all: a temporary file, fsync, rename.
void write_pt(const std::string& path, const Tree& tree);

/// Reads and verifies a .pt or safetensors file. Tensors arrive on the CPU whatever device they were saved
/// from. InputError that names the file and the flaw for anything damaged, unknown or unsafe.
Tree read_pt(const std::string& path);

/// The same from memory. `name` is what errors call it.
Tree read_pt(std::span<const uint8_t> bytes, const std::string& name);

/// What protects a checkpoint file's bytes. With none, a flipped bit is not detected.
enum class Checksum { none, each_record, whole_file };

/// A file's content, and what is known about the file.
struct CheckpointFile {
  Tree tree;
  std::string format;  // "pt" or "safetensors"
  Checksum checksum = Checksum::none;
};

/// As read_pt().
CheckpointFile open_checkpoint_file(const std::string& path);
Tree read_checkpoint_file(const std::string& path);

}  // namespace lockstep
