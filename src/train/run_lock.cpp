#include "train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace lockstep::train {
namespace {

constexpr double kFreshSeconds = 60;       // a running rank 0 renews status.json at least every 10 s
constexpr long kLustreMagic = 0x0BD00BD0;  // Lustre may be mounted with locks that only this node sees

std::filesystem::path lock_file(const std::filesystem::path& folder) {
  return folder / "lock";
}

bool locks_may_be_local(int fd) {
  struct statfs facts {};
  return ::fstatfs(fd, &facts) == 0 && facts.f_type == kLustreMagic;
}

// Where the lock itself cannot tell: a run on another node that wrote its status a moment ago is alive.
bool alive_elsewhere(const std::filesystem::path& folder) {
  try {
    const auto json = nlohmann::json::parse(read_text(folder / "status.json"));
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    using namespace std::chrono;
    const double age =
        duration<double>(system_clock::now().time_since_epoch()).count() - json.value("updated", 0.0);
    return json.value("state", "") == "running" && json.value("host", "") != host && age < kFreshSeconds;
  } catch (const std::exception&) {
    return false;
  }
}

enum class Held { mine, others, unknown };

Held try_lock(int fd, int kind) {
  if (::flock(fd, kind | LOCK_NB) == 0) return locks_may_be_local(fd) ? Held::unknown : Held::mine;
  return errno == EWOULDBLOCK ? Held::others : Held::unknown;
}

bool held_by_others(int fd, int kind, const std::filesystem::path& folder) {
  const auto held = try_lock(fd, kind);
  return held == Held::others || (held == Held::unknown && alive_elsewhere(folder));
}

}  // namespace

std::optional<RunLock> RunLock::take(const std::filesystem::path& folder) {
  Descriptor file(::open(lock_file(folder).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) {
    throw InputError(std::string("the run folder cannot be written: ") + std::strerror(errno),
                     folder.string(), "set run.dir to a folder that you may write to");
  }
  if (held_by_others(file.number(), LOCK_EX, folder)) return std::nullopt;
  return RunLock(std::move(file));
}

bool in_use(const std::filesystem::path& folder) {
  const Descriptor file(::open(lock_file(folder).c_str(), O_RDONLY | O_CLOEXEC));
  return file ? held_by_others(file.number(), LOCK_SH, folder) : alive_elsewhere(folder);
}

}  // namespace lockstep::train
