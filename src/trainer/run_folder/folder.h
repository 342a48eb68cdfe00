#pragma once
// Which folder a run writes to: a new one, or that of a run which can go on. Two jobs never share one, and
// nothing is written over.

#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "trainer/config/settings.h"
#include "trainer/run_folder/lock.h"

namespace lockstep::run_folder {

struct RunFolder {
  std::filesystem::path path;
  RunLock lock;
  bool goes_on = false;                 // an earlier attempt was here
  std::vector<std::string> notes = {};  // why this folder, for the log
};

/// An InputError where the folder is not one of a run's, or cannot be written.
void check_run_folder(const std::filesystem::path& path);

/// An InputError where no run's folder can be made. Leaves no trace.
void check_run_dir(const RunSettings& run);

/// Before the data are read: the config.yaml of the run that open_run_folder() will go on with; empty where
/// that is none. Touches nothing.
std::string config_to_go_on_with(const Settings& asked, const std::string& resume);

/// `resume`: empty = the first free of NAME, NAME-2, ...; "auto" = the newest run of that name that is
/// unfinished, not in use and of the same config, else a new one; a folder = that one. Runs are compared with
/// what was `asked` for; a new one gets it as it was `resolved`.
RunFolder open_run_folder(const Settings& asked, const std::string& resume, const Settings& resolved);
inline RunFolder open_run_folder(const Settings& settings, const std::string& resume) {
  return open_run_folder(settings, resume, settings);
}

/// The first write to it, once it is known that the run can go on there: what this attempt runs. What killed
/// writers left is swept.
void begin_in(const std::filesystem::path& folder, const Settings& settings);

/// A new folder for a run whose own, `removed`, is gone: another of its names.
RunFolder open_successor(const Settings& settings, const std::filesystem::path& removed);

// The folder that a run writes to, asked before each checkpoint and status: still its own, taken by another
// job, or removed. A removed one gets a successor beside it.

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
