#pragma once
// What a checkpoint file holds, entry by entry.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/pt.h"

namespace lockstep::checkpoint {

struct InspectedEntry {
  std::string name;        // "model.conv1.weight"
  std::string kind;        // "tensor", or "int", "float", "bool", "text", "none", "empty"
  std::string value = {};  // of what is no tensor
  std::string dtype = {};  // "float32"
  std::vector<int64_t> shape = {};
  uint64_t bytes = 0;
  std::string digest = {};  // of the elements in row-major order, little-endian
};

struct InspectedFile {
  std::string format;  // "pt" or "safetensors"
  uint64_t file_bytes = 0;
  Checksum checksum = Checksum::none;
  std::vector<InspectedEntry> entries;
};

using Digest = std::function<std::string(std::span<const uint8_t>)>;

InspectedEntry inspect_tensor(const std::string& name, const at::Tensor& tensor, const Digest& digest);

/// `path`, or the newest checkpoint of a run's folder, damaged or not.
std::string file_to_inspect(const std::string& path);

/// Reads and verifies the whole file. InputError as read_pt.
InspectedFile inspect_file(const std::string& path, const Digest& digest);

}  // namespace lockstep::checkpoint
