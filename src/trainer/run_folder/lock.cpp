#include "trainer/run_folder/lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/json.h"

namespace lockstep::run_folder {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr double kFreshSeconds = 60;  // a running rank 0 renews the file every 5 s
constexpr auto kSettle = 200ms;  // of two processes that replace a stale lock at once, the later one keeps it
constexpr auto kListen = 500ms;
constexpr size_t kMostLockBytes = 4096;

// Field 22 of /proc/PID/stat; 0 if there is no such process, or only its exit status is left.
int64_t start_of(int64_t pid) {
  const auto line = base::first_line("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream words(line.substr(name_end + 1));
  std::string state, skipped;
  words >> state;
  if (state == "Z" || state == "X") return 0;
  for (int field = 4; field < 22; ++field) words >> skipped;
  int64_t start = 0;
  words >> start;
  return start;
}

LockRecord record_of_this_process() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::error_code none;
  const auto place = base::first_line("/proc/sys/kernel/random/boot_id") + " " +
                     fs::read_symlink("/proc/self/ns/pid", none).string();
  return {host, place, ::getpid(), start_of(::getpid()), unix_now()};
}

std::string text_of(const LockRecord& record) {
  const nlohmann::ordered_json json = {{"host", record.host},
                                       {"place", record.place},
                                       {"pid", record.pid},
                                       {"started", record.started},
                                       {"since", record.since}};
  return base::as_line(json) + "\n";
}

// Throws nlohmann's exceptions for another text, and InputError if the file cannot be read.
LockRecord read_record(const fs::path& lock) {
  const auto json = base::parse_json(base::read_small_file(lock.string(), kMostLockBytes, "the run's lock"));
  return {json.at("host"), json.at("place"), json.at("pid"), json.at("started"), json.at("since")};
}

// Seconds since 1970; 0 if there is no such file. Opening it makes NFS ask its server, which stat() may not.
double last_sign_of_life(const fs::path& lock) {
  const base::Descriptor file(::open(lock.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat facts {};
  if (!file || ::fstat(file.number(), &facts) != 0) return 0;
  return static_cast<double>(facts.st_mtim.tv_sec) + 1e-9 * static_cast<double>(facts.st_mtim.tv_nsec);
}

enum class Holder { alive, dead, on_another_host };

Holder holder_of(const fs::path& lock) {
  try {
    const auto record = read_record(lock);
    const auto here = record_of_this_process();
    if (record.pid == 0) return Holder::dead;
    if (record.host != here.host || record.place != here.place) return Holder::on_another_host;
    return start_of(record.pid) == record.started ? Holder::alive : Holder::dead;
  } catch (const std::exception&) {
    return Holder::dead;  // killed before it wrote its name
  }
}

// Nothing if there is no such file, or no more.
std::optional<std::string> text_in(const fs::path& lock) {
  try {
    return base::read_small_file(lock.string(), kMostLockBytes, "the run's lock");
  } catch (const InputError&) {
    if (fs::exists(lock)) throw;
    return std::nullopt;
  }
}

// False where another process has replaced it meanwhile: the write waits for the disk.
bool replace_stale(const fs::path& lock, const std::string& stale, const std::string& text) {
  struct Overtaken {};
  try {
    base::write_whole(
        lock.string(), [&](const base::ByteSink& sink) { sink(text.data(), text.size()); },
        [&] {
          if (text_in(lock) != stale) throw Overtaken();
        });
    return true;
  } catch (const Overtaken&) {
    return false;
  }
}

bool is_fresh(const fs::path& lock, double now) {
  return now - last_sign_of_life(lock) < kFreshSeconds;
}

// By the clock that gives the lock its times: the file server's may be another one than this host's.
double server_now(const fs::path& lock) {
  std::string temporary;
  const auto file = base::make_partial(lock.string(), temporary);
  if (!file) return unix_now();
  const double now = last_sign_of_life(temporary);
  ::unlink(temporary.c_str());
  return now;
}

// A job that restarts on another node right after its node died finds a fresh lock. A living holder renews it
// within seconds; a dead one is waited for.
bool stays_held(const fs::path& lock) {
  auto holder = holder_of(lock);
  if (holder == Holder::dead) {  // or it is about to write its name
    std::this_thread::sleep_for(kSettle);
    holder = holder_of(lock);
  }
  if (holder != Holder::on_another_host) return holder == Holder::alive;
  const double first = last_sign_of_life(lock);
  for (; is_fresh(lock, server_now(lock)); std::this_thread::sleep_for(kListen))
    if (last_sign_of_life(lock) > first) return true;
  return false;
}

}  // namespace

void refuse_folder(const std::string& what, const fs::path& folder, int reason) {
  const auto text = what + ": " + std::strerror(reason);
  if (reason == ENOSPC || reason == EDQUOT) throw Error(text, folder.string(), "free disk space");
  throw InputError(text, folder.string(), "set run.dir to a folder that you may write to");
}

std::optional<RunLock> RunLock::take(const fs::path& folder) {
  RunLock lock(folder / "lock", record_of_this_process());
  const auto text = text_of(lock.mine_);
  constexpr int kTries = 3;  // its holder may end, and delete it, while this process looks
  for (int tries = 0; tries < kTries; ++tries) {
    base::Descriptor file(::open(lock.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (file) {
      if (base::write_all(file.number(), text) && file.close()) return lock;
      refuse_folder("the run folder cannot be written", folder, errno);
    }
    if (errno != EEXIST) refuse_folder("the run folder cannot be written", folder, errno);
    const auto stale = text_in(lock.path_);
    if (stale && !stays_held(lock.path_) && replace_stale(lock.path_, *stale, text)) {
      std::this_thread::sleep_for(kSettle);
      if (lock.hold() == Hold::ours) return lock;
    }
    if (fs::exists(lock.path_)) break;
  }
  lock.path_.clear();
  return std::nullopt;
}

RunLock::~RunLock() {
  if (!path_.empty() && hold() == Hold::ours) ::unlink(path_.c_str());
}

void RunLock::renew() const {
  if (hold() == Hold::ours) ::utimensat(AT_FDCWD, path_.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

// An error that says nothing about the holder changes nothing.
Hold RunLock::hold() const {
  const base::Descriptor file(
      ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));  // makes NFS ask its server
  if (!file) return errno == ENOENT || errno == ENOTDIR ? Hold::gone : Hold::ours;
  try {
    return read_record(path_) == mine_ ? Hold::ours : Hold::taken;
  } catch (const std::exception&) {
    return Hold::ours;
  }
}

bool in_use(const fs::path& folder) {
  const auto lock = folder / "lock";
  const auto holder = holder_of(lock);
  return holder == Holder::alive || (holder == Holder::on_another_host && is_fresh(lock, unix_now()));
}

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep::run_folder
