#pragma once
// The lock file of a run's folder. It names the process that holds the folder: host, pid, and the time of its
// last sign of life. flock is not used, because many cluster file systems keep those locks within one node.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace lockstep::run_folder {

/// Seconds since 1970, as a run's files tell the time.
double unix_now();

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
  /// Nothing while another process holds the folder. Waits up to a minute for a holder on another host to
  /// renew it.
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

}  // namespace lockstep::run_folder
