#include "course/workshop/check_slot.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "course/workshop/process/interruption.h"
#include "course/workshop/process/processes.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/variables.h"

namespace lockstep::workshop {
namespace {

using base::Descriptor;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kSlotWithin{10};
constexpr std::chrono::milliseconds kBetweenTries{100};
constexpr int kCoresOfACheck = 2;
constexpr long kBytesOfACheck = 4L << 30;

// Another user's file may be opened and locked, but not, in /tmp, with O_CREAT; NFS locks what may be
// written.
int open_there(const std::string& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int ours = ::open(path.c_str(), kFlags | O_RDWR);
  return ours >= 0 ? ours : ::open(path.c_str(), kFlags | O_RDONLY);
}

// for others to open too, whatever our umask
int make_lock(const std::string& path) {
  const int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (made >= 0) ::fchmod(made, 0644);
  return made;
}

// a closed file, or a link in its place
bool is_kept_from_us() {
  return errno == EACCES || errno == EPERM || errno == ELOOP;
}

// nothing where somebody holds it, or keeps us from it; where locks cannot be had at all nobody is waited for
std::optional<Descriptor> try_lock(const std::string& path) {
  Descriptor file(open_there(path));
  if (!file && is_kept_from_us()) return std::nullopt;
  if (!file) file = Descriptor(make_lock(path));
  if (!file && errno == EEXIST) return std::nullopt;
  if (file && ::flock(file.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::nullopt;
  return file;
}

// Who holds the lock, by the kernel's list: "1: FLOCK  ADVISORY  WRITE 4711 08:01:393219 0 EOF". Nothing
// where that is not told, or the holder lives on another machine.
std::optional<pid_t> holder_of(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return std::nullopt;
  const auto file = ":" + std::to_string(facts.st_ino);
  std::ifstream list("/proc/locks");
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, write, place;
    pid_t pid = 0;
    if (words >> number >> kind >> advisory >> write >> pid >> place && kind == "FLOCK" &&
        place.ends_with(file))
      return pid;
  }
  return std::nullopt;
}

// by Ctrl-Z, say: that may last for days
std::optional<pid_t> stopped_holder_of(const std::string& path) {
  const auto holder = holder_of(path);
  return holder && is_stopped(*holder) ? holder : std::nullopt;
}

template <class Try>
Descriptor wait_for(Try attempt, const SayWaiting& say, const std::string& words) {
  bool has_said = false;
  for (const auto deadline = Clock::now() + kSlotWithin; Clock::now() < deadline;) {
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
      const auto lock = format("/tmp/lockstep-check-{}.lock", place);
      if (auto held = try_lock(lock)) return held;
      if (!stopped_holder_of(lock)) continue;
      if (auto held = try_lock(format("/tmp/lockstep-check-{}.spare.lock", place))) return held;
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
  const auto attempt = [&] {
    auto held = try_lock(lock);
    if (const auto holder = held ? std::nullopt : stopped_holder_of(lock))
      throw InputError(format("a check of this folder is stopped (process {})", *holder), lock,
                       format("let it go on (fg), or end it: kill -9 {}", *holder));
    return held;
  };
  return wait_for(attempt, say, "waiting: another check of this folder runs");
}

}  // namespace lockstep::workshop
