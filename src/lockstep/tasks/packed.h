#pragma once
// One file with the samples of a set, written by `lockstep data pack` and mapped by all ranks: safetensors.

#include <ATen/core/Tensor.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/checkpoint/large_safetensors.h"
#include "lockstep/data/node_share.h"
#include "lockstep/options/settings.h"

namespace lockstep::tasks {

struct PackedSet {
  std::string kind;                                // of samples: "a table", "texts" or "images"
  nlohmann::json keys = nlohmann::json::object();  // the config's keys that decide the content
  nlohmann::json facts = nlohmann::json::object();
  std::vector<at::Tensor> tensors = {};
  std::string path = {};

  /// InputError unless the config has the values of `keys` in `now`.
  void check_keys(const nlohmann::json& now) const;
  /// Tensor `index`. InputError if it does not have this type and shape; a size of -1 may be any.
  at::Tensor tensor(size_t index, at::ScalarType type, const std::vector<int64_t>& shape) const;
  /// InputError unless `holds`, for what only a damaged file has.
  void require(bool holds) const;
};

/// A task whose samples fit into one file.
class PackableTask {
 public:
  virtual ~PackableTask() = default;
  /// Writes the file; returns the number of samples.
  virtual int64_t pack(const TaskConfig& settings, const std::string& path) = 0;
};

/// Writes the set, and `last` as its last tensor. `mode`: the file's permission bits.
void write_packed(const std::string& path, const PackedSet& set, mode_t mode,
                  checkpoint::StreamedBytes last = {});

/// The permission bits of a copy: only users who can read all of these files can read it.
mode_t readable_as(const std::vector<std::string>& files);

/// Whether it is a regular file that this user can read.
bool can_read(const std::string& path);

/// InputError for a safetensors file.
void refuse_packed(const std::string& path);

/// Calls `read` with the set, whose tensors are views of the file; false if it is not a safetensors file.
/// Throws InputError if `lockstep data pack` did not write it, for another kind of samples, and for damaged
/// facts.
bool read_packed(const std::string& path, const std::string& kind, Arena& arena,
                 const std::function<void(const PackedSet& set)>& read);

}  // namespace lockstep::tasks
