#include "trainer/run_folder/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/json.h"
#include "trainer/run_folder/status.h"

namespace lockstep::run_folder {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr double kFreshSeconds = 60;  // a running rank 0 renews status.json every 5 s
constexpr auto kSettle = 200ms;       // two that take a folder at once without flock: the later record stays
constexpr auto kListen = 500ms;
constexpr auto kGlance = 10ms;         // `lockstep status` holds the lock for less
constexpr size_t kRecordBytes = 1024;  // of one size, so that one write replaces it
// Their locks may be seen by this node alone (Lustre by mount option, BeeGFS by its settings, FUSE by its
// server).
constexpr std::array<long, 3> kLocalLocks = {0x0BD00BD0, 0x19830326, 0x65735546};

fs::path lock_file(const fs::path& folder) {
  return folder / "lock";
}

// Field 22 of proc(5)'s stat; 0 where there is no such process any more, or only its exit status is left.
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

std::string place_here() {
  std::error_code none;
  return base::first_line("/proc/sys/kernel/random/boot_id") + " " +
         fs::read_symlink("/proc/self/ns/pid", none).string();
}

LockRecord record_of_us(int64_t epoch) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return {epoch, host, place_here(), ::getpid(), start_of(::getpid()), unix_now()};
}

std::string line_of(const LockRecord& record) {
  const nlohmann::ordered_json json = {{"epoch", record.epoch},     {"host", record.host},
                                       {"place", record.place},     {"pid", record.pid},
                                       {"started", record.started}, {"since", record.since}};
  auto text = base::as_line(json);
  text.resize(std::max(text.size() + 1, kRecordBytes), ' ');
  text.back() = '\n';
  return text;
}

// Nothing where none was ever written, as by an older lockstep.
std::optional<LockRecord> record_in(int fd) {
  std::string text(2 * kRecordBytes, '\0');
  const auto got = ::pread(fd, text.data(), text.size(), 0);
  try {
    const auto json = base::parse_json(text.substr(0, static_cast<size_t>(std::max<ssize_t>(got, 0))));
    return LockRecord{json.at("epoch"), json.at("host"),    json.at("place"),
                      json.at("pid"),   json.at("started"), json.at("since")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

bool write_record(int fd, const LockRecord& record) {
  const auto text = line_of(record);
  const auto written = ::pwrite(fd, text.data(), text.size(), 0);
  if (written >= 0 && written < static_cast<ssize_t>(text.size())) errno = ENOSPC;
  return written == static_cast<ssize_t>(text.size());
}

// When its holder last gave a sign of life, seconds since 1970; 0 = it left, or is one that flock speaks for.
double last_heard(const fs::path& folder, const std::optional<LockRecord>& holder) {
  const double taken = holder ? holder->since : 0;
  try {
    const auto status = read_status(folder);
    if (!holder && status.host == record_of_us(0).host) return 0;
    if (status.state == RunState::running) return std::max(taken, status.updated);
    return status.updated >= taken ? 0 : taken;
  } catch (const std::exception&) {
    return taken;  // it has not come to its first word, or not to a whole one
  }
}

bool is_fresh(double heard) {
  return unix_now() - heard < kFreshSeconds;
}

bool is_here(const LockRecord& holder) {
  const auto here = record_of_us(0);
  return holder.host == here.host && holder.place == here.place;
}

bool is_alive(const fs::path& folder, const std::optional<LockRecord>& holder) {
  if (holder && holder->pid == 0) return false;
  if (holder && is_here(*holder)) return start_of(holder->pid) == holder->started;
  return is_fresh(last_heard(folder, holder));
}

// A job that is begun again elsewhere at once, because its node died, finds itself heard a moment ago: a
// heart that beats shows that within seconds, and one that does not is waited for.
bool stays_alive(const fs::path& folder, const std::optional<LockRecord>& holder) {
  const double first = last_heard(folder, holder);
  while (is_alive(folder, holder)) {
    if ((holder && is_here(*holder)) || last_heard(folder, holder) > first) return true;
    std::this_thread::sleep_for(kListen);
  }
  return false;
}

enum class Flock { mine, others, unknown };

bool locks_may_be_local(int fd) {
  struct statfs facts {};
  return ::fstatfs(fd, &facts) == 0 &&
         std::find(kLocalLocks.begin(), kLocalLocks.end(), facts.f_type) != kLocalLocks.end();
}

Flock try_lock(int fd, int kind) {
  for (int tries = 0; tries < 3; ++tries) {
    if (::flock(fd, kind | LOCK_NB) == 0) return locks_may_be_local(fd) ? Flock::unknown : Flock::mine;
    if (errno != EWOULDBLOCK) return Flock::unknown;
    std::this_thread::sleep_for(kGlance);
  }
  return Flock::others;
}

[[noreturn]] void cannot_write(const fs::path& folder) {
  refuse_folder("the run folder cannot be written", folder, errno);
}

}  // namespace

void refuse_folder(const std::string& what, const fs::path& folder, int reason) {
  const auto text = what + ": " + std::strerror(reason);
  if (reason == ENOSPC || reason == EDQUOT) throw Error(text, folder.string(), "free disk space");
  throw InputError(text, folder.string(), "set run.dir to a folder that you may write to");
}

std::optional<RunLock> RunLock::take(const fs::path& folder) {
  auto file = base::open_to_write(lock_file(folder).string(), "the run's lock");
  const auto lock = try_lock(file.number(), LOCK_EX);
  const auto before = record_in(file.number());
  if (lock == Flock::others || (lock == Flock::unknown && stays_alive(folder, before))) return std::nullopt;
  const auto mine = record_of_us((before ? before->epoch : 0) + 1);
  if (!write_record(file.number(), mine)) cannot_write(folder);
  if (lock == Flock::unknown) std::this_thread::sleep_for(kSettle);
  RunLock taken(std::move(file), lock_file(folder), mine);
  if (taken.hold() != Hold::ours) return std::nullopt;
  return taken;
}

// Where only the record tells, the next job need not wait for it to grow old.
RunLock::~RunLock() {
  if (!file_ || hold() != Hold::ours) return;
  mine_.pid = 0;
  write_record(file_.number(), mine_);
}

// By its name: that makes a shared file system look again. What cannot be told now changes nothing.
Hold RunLock::hold() const {
  const base::Descriptor file(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) return errno == ENOENT || errno == ENOTDIR ? Hold::gone : Hold::ours;
  const auto now = record_in(file.number());
  return !now || *now == mine_ ? Hold::ours : Hold::taken;
}

bool in_use(const fs::path& folder) {
  const base::Descriptor file(::open(lock_file(folder).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) return is_alive(folder, std::nullopt);
  const auto lock = try_lock(file.number(), LOCK_SH);
  return lock == Flock::others || (lock == Flock::unknown && is_alive(folder, record_in(file.number())));
}

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep::run_folder
