#pragma once
// Who holds a run's folder: an advisory lock that the kernel drops with its process, however that ends.

#include <filesystem>
#include <optional>
#include <utility>

#include "base/descriptor.h"

namespace lockstep::train {

/// The lock on one folder, held as long as the object lives.
class RunLock {
 public:
  /// The lock, or nothing while another process (on any node that shares the file system) holds it.
  static std::optional<RunLock> take(const std::filesystem::path& folder);

 private:
  explicit RunLock(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

/// Whether some process holds the folder now.
bool in_use(const std::filesystem::path& folder);

}  // namespace lockstep::train
