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

/// The permission bits of a copy: only its owner can read it, unless everybody can read all of these files.
/// Their group's members are not counted, since the copy may have another group.
inline mode_t readable_as(const std::vector<std::string>& files) {
  struct stat facts {};
  for (const auto& file : files)
    if (::stat(file.c_str(), &facts) != 0 || (~facts.st_mode & 0044) != 0) return 0600;
  return 0644;
}

}  // namespace lockstep::tasks
