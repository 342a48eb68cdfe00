#pragma once
// A folder that is gone with its owner.

#include <string>

namespace lockstep::base {

class TemporaryFolder {
 public:
  /// Under TMPDIR, or /tmp; an Error where it cannot be made.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::base
