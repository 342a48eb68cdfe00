#pragma once
// Sets in one file, which `lockstep data pack` writes.

#include <sys/stat.h>

#include <string>
#include <vector>

#include "lockstep/options/settings.h"

namespace lockstep::tasks {

/// A task whose samples fit into one file.
class PackableTask {
 public:
  virtual ~PackableTask() = default;
  /// How the file's name ends; empty if the set cannot be packed.
  virtual std::string packed_ending() const = 0;
  /// Writes the file; returns the number of samples.
  virtual int64_t pack(const TaskConfig& settings, const std::string& path) = 0;
};

/// The permission bits of a copy: only users who can read all of these files can read it.
inline mode_t readable_as(const std::vector<std::string>& files) {
  mode_t mode = 0644;
  struct stat facts {};
  for (const auto& file : files) mode &= ::stat(file.c_str(), &facts) == 0 ? facts.st_mode | 0600 : 0600;
  return mode;
}

}  // namespace lockstep::tasks
