#pragma once
// The folder that a run writes to. Two jobs never share one, and nothing is overwritten.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "trainer/config/settings.h"
#include "trainer/run_folder/lock.h"

namespace lockstep::run_folder {

struct RunFolder {
  std::filesystem::path path;
  RunLock lock;
};

/// An InputError where no run folder can be created. Leaves no trace.
void check_run_dir(const RunSettings& run);

/// The first free of NAME, NAME-2, ..., with the settings in its config.yaml.
RunFolder new_run(const Settings& settings);

/// `resume`: a folder, which has to be a run's that nobody holds; or "auto", the newest run of that name that
/// is unfinished, not in use and of the same config, if there is one. Changes nothing there but the lock.
std::optional<RunFolder> resume_run(const Settings& asked, const std::string& resume);

/// The text of its config.yaml.
std::string config_text_of(const std::filesystem::path& folder);

/// Writes config.yaml, once it is certain that the run can be resumed there, and removes what killed writers
/// left.
void begin_in(const std::filesystem::path& folder, const Settings& settings);

/// The folder was deleted, or another job holds it now. This run must write nothing more.
class FolderLost : public Error {
 public:
  FolderLost(const std::filesystem::path& folder, Hold hold);
};

/// A folder while a run writes to it. A thread renews the lock, and notices when the folder is lost.
class HeldFolder {
 public:
  explicit HeldFolder(RunFolder folder, std::chrono::milliseconds beat = std::chrono::seconds(5));
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  const std::filesystem::path& path() const { return folder_.path; }
  /// Reads the lock. Throws FolderLost.
  void check();
  /// Throws FolderLost if an earlier check() or the thread found that out. Reads nothing.
  void refuse_if_lost() const;
  /// Writes a file of the folder whole or not at all. Throws FolderLost instead of putting it in place.
  void write_whole(const std::string& name, const std::function<void(const base::ByteSink&)>& write);

  /// The thread also calls this at each beat, and within a second of beat_soon(). Pass nullptr to end that.
  void on_beat(std::function<void()> action);
  void beat_soon();

 private:
  void keep_beating(std::chrono::milliseconds beat);

  RunFolder folder_;
  std::atomic<Hold> hold_ = Hold::ours;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false, wanted_ = false;
  std::mutex action_mutex_;  // held while the action runs
  std::function<void()> action_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep::run_folder
