#pragma once
// The folder that a run writes to, asked before each checkpoint and status: still its own, taken by another
// job, or removed. A removed one gets a successor beside it.

#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>

#include "lockstep/base/error.h"
#include "trainer/run_folder/folder.h"

namespace lockstep::run_folder {

/// Another job holds the folder now; whoever gets this has nothing more to write there.
class FolderTaken : public Error {
 public:
  explicit FolderTaken(const std::filesystem::path& folder);
};

/// The folder was removed while something was on its way into it: to be written again, to path().
class FolderRemoved : public Error {
 public:
  explicit FolderRemoved(const std::filesystem::path& folder);
};

class HeldFolder {
 public:
  /// `make_successor` opens the folder that takes the place of the one that was removed.
  HeldFolder(RunFolder folder, std::function<RunFolder(const std::filesystem::path& removed)> make_successor);

  /// Where to write now; from any thread. Throws FolderTaken.
  std::filesystem::path path();
  /// Throws FolderTaken, or FolderRemoved, where `folder` is no longer where to write.
  void check(const std::filesystem::path& folder);

  /// Throws FolderTaken where somebody has found that out before; does not look.
  void refuse_if_taken();
  /// The folder that was removed, if one was.
  std::optional<std::filesystem::path> removed();

 private:
  std::mutex mutex_;
  RunFolder folder_;
  std::function<RunFolder(const std::filesystem::path& removed)> make_successor_;
  std::optional<std::filesystem::path> removed_;
  std::atomic<bool> taken_ = false;
};

}  // namespace lockstep::run_folder
