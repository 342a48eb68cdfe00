#pragma once
// The folder that a run writes to. Two jobs never share one, and nothing is overwritten.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "trainer/config/settings.h"

namespace lockstep::run_folder {

// The lock file of a run's folder. It names the process that holds the folder: host, pid, and the time of its
// last sign of life. flock is not used, because many cluster file systems keep those locks within one node.

/// Seconds since 1970, as a run's files tell the time.
double unix_now();
/// Field 22 of /proc/PID/stat; 0 if there is no such process, or only its exit status is left.
int64_t start_of(int64_t pid);

struct LockRecord {
  std::string host;
  std::string place;    // this boot of this machine, and its PID namespace
  int64_t pid = 0;      // 0: the folder is free; older versions leave this record
  int64_t started = 0;  // of that process, in the kernel's ticks, because PIDs are used again
  double since = 0;     // seconds since 1970
  bool operator==(const LockRecord&) const = default;
};

enum class Hold { ours, taken, gone };

/// Held as long as the object lives. Call renew() every few seconds.
class RunLock {
 public:
  /// Nothing while another process holds the folder. Waits up to a minute for a holder on another host.
  static std::optional<RunLock> take(const std::filesystem::path& folder);
  ~RunLock();
  RunLock(RunLock&& other) noexcept : path_(std::move(other.path_)), mine_(std::move(other.mine_)) {
    other.path_.clear();
  }
  RunLock& operator=(RunLock&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(mine_, other.mine_);
    return *this;
  }

  /// Tells other hosts that this process is alive.
  void renew() const;
  /// Reads the file: a suspended process may have lost the folder, and a user may delete it.
  Hold hold() const;

 private:
  RunLock(std::filesystem::path path, LockRecord mine) : path_(std::move(path)), mine_(std::move(mine)) {}
  std::filesystem::path path_;
  LockRecord mine_;
};

/// Throws for a folder that cannot be created or written: an InputError, or an Error if the disk is full.
[[noreturn]] void refuse_folder(const std::string& what, const std::filesystem::path& folder, int reason);

/// Whether some process holds the folder now.
bool in_use(const std::filesystem::path& folder);

/// Of a file or folder. A file server may store all files under another user; then nothing is another's.
bool is_of_another_user(const std::filesystem::path& path);

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

/// Writes config.yaml, once the run can be resumed there, and removes what killed writers left.
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

  /// The thread also calls this at each heartbeat, with true soon after wake_heartbeat(), until nullptr.
  void on_heartbeat(std::function<void(bool)> action);
  void wake_heartbeat();

 private:
  void keep_beating(std::chrono::milliseconds beat);

  RunFolder folder_;
  std::atomic<Hold> hold_ = Hold::ours;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false, wanted_ = false;
  std::mutex action_mutex_;  // held while the action runs
  std::function<void(bool)> action_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep::run_folder
