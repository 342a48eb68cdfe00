#pragma once
// Who holds a run's folder: a lock that the kernel drops with its process, and a record of the holder for
// where the kernel's lock does not reach (locks local to a node, file systems without any).

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/descriptor.h"

namespace lockstep::run_folder {

/// Seconds since 1970, as a run's files tell the time.
double unix_now();

/// The lock file's words. Each who takes the folder raises the epoch, so that whoever had it before can tell.
struct LockRecord {
  int64_t epoch = 0;
  std::string host, place;  // place: this boot of this machine and its process numbers
  int64_t pid = 0;          // 0 = nobody holds it
  int64_t started = 0;      // of that process, in the kernel's ticks: numbers are used again
  double since = 0;         // seconds since 1970
  bool operator==(const LockRecord&) const = default;
};

enum class Hold { ours, taken, gone };

/// The lock on one folder, held as long as the object lives.
class RunLock {
 public:
  /// The lock, or nothing while another process (on any node that shares the file system) holds it. Where
  /// only the holder's signs of life can tell, up to a minute is spent on listening for one.
  static std::optional<RunLock> take(const std::filesystem::path& folder);
  ~RunLock();
  RunLock(RunLock&&) noexcept = default;
  RunLock& operator=(RunLock&&) noexcept = default;

  /// Looks again: a process that was stopped for long may have lost the folder, and anybody may remove it.
  Hold hold() const;

 private:
  RunLock(base::Descriptor file, std::filesystem::path path, LockRecord mine)
      : file_(std::move(file)), path_(std::move(path)), mine_(std::move(mine)) {}
  base::Descriptor file_;
  std::filesystem::path path_;
  LockRecord mine_;
};

/// A folder that cannot be made or written, for the system's `reason`: an InputError, but for want of room.
[[noreturn]] void refuse_folder(const std::string& what, const std::filesystem::path& folder, int reason);

/// Whether some process holds the folder now.
bool in_use(const std::filesystem::path& folder);

}  // namespace lockstep::run_folder
