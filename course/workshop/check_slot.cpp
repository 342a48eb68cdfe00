#include "course/workshop/check_slot.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

#include "course/workshop/process.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/variables.h"

namespace lockstep::workshop {
namespace {

using base::Descriptor;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kLockWithin{10};
constexpr std::chrono::milliseconds kBetweenTries{100};
constexpr int kCoresOfACheck = 2;
constexpr long kBytesOfACheck = 4L << 30;

// Another user's file may be opened and locked, but not, in /tmp, with O_CREAT; NFS locks what may be
// written. For others to open too, whatever our umask.
int open_lock(const std::string& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  for (const int access : {O_RDWR, O_RDONLY}) {
    if (const int there = ::open(path.c_str(), kFlags | access); there >= 0) return there;
  }
  if (errno == EACCES || errno == EPERM || errno == ELOOP) return -1;
  const int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (made >= 0) ::fchmod(made, 0644);
  return made;
}

// nothing where somebody holds it, or keeps us from it; where locks cannot be had at all nobody is waited for
std::optional<Descriptor> try_lock(const std::string& path) {
  Descriptor file(open_lock(path));
  const bool is_kept_from_us = errno == EACCES || errno == EPERM || errno == ELOOP || errno == EEXIST;
  if (!file && is_kept_from_us) return std::nullopt;
  if (file && ::flock(file.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::nullopt;
  return file;
}

template <class Try>
Descriptor wait_for(Try attempt, const SayWaiting& say, const std::string& words) {
  bool has_said = false;
  for (const auto deadline = Clock::now() + kLockWithin; Clock::now() < deadline;) {
    if (auto held = attempt()) return std::move(*held);
    if (!has_said) say(words);
    has_said = true;
    std::this_thread::sleep_for(kBetweenTries);
    Interruption::check();
  }
  return Descriptor();
}

}  // namespace

int checks_at_once() {
  const auto wanted = launch::number_of(launch::current_environment(), "LOCKSTEP_CHECKS");
  if (wanted) return std::max(1, *wanted);
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);  // the machine's: other jobs' checks count too
  const long memory = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  return static_cast<int>(std::max(1L, std::min(cores / kCoresOfACheck, memory / kBytesOfACheck)));
}

Descriptor take_check_slot(const SayWaiting& say) {
  const int most = checks_at_once();
  const auto any = [&]() -> std::optional<Descriptor> {
    for (int place = 0; place < most; ++place) {
      if (auto held = try_lock(format("/tmp/lockstep-check-{}.lock", place))) return held;
    }
    return std::nullopt;
  };
  return wait_for(any, say,
                  format("waiting: {} on this machine already",
                         most == 1 ? "a check runs" : format("{} checks run", most)));
}

Descriptor take_folder(const std::string& lock, const SayWaiting& say) {
  if (::access(lock.c_str(), F_OK) == 0 && ::access(lock.c_str(), R_OK) != 0)
    throw InputError("this folder is checked by another user too, who keeps it closed", lock,
                     "remove this file, or make a folder of your own: lockstep workshop init DIR");
  return wait_for([&] { return try_lock(lock); }, say,
                  "waiting: another check of this folder runs (stopped by Ctrl-Z? then: fg)");
}

}  // namespace lockstep::workshop
