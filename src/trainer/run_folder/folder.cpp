#include "trainer/run_folder/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "trainer/config/config_text.h"
#include "trainer/config/load.h"
#include "trainer/run_folder/status.h"

namespace lockstep::run_folder {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

int64_t start_of(int64_t pid) {
  const auto line = base::first_line("/proc/" + std::to_string(pid) + "/stat");
  const auto fields = base::split(line.substr(line.rfind(')') + 1), ' ');  // from the blank before field 3
  if (fields.size() < 21 || fields[1] == "Z" || fields[1] == "X") return 0;
  return base::number_in(fields[20]).value_or(0);
}

namespace {

constexpr double kFreshSeconds = 60;  // a running rank 0 renews the file every 5 s
constexpr auto kSettle = 200ms;  // of two processes that replace a stale lock at once, the later one keeps it
constexpr auto kListen = 500ms;
constexpr size_t kMostLockBytes = 4096;

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
double last_heartbeat(const fs::path& lock) {
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
  return now - last_heartbeat(lock) < kFreshSeconds;
}

// By the clock that gives the lock its times: the file server's may be another one than this host's.
double server_now(const fs::path& lock) {
  std::string temporary;
  const auto file = base::make_partial(lock.string(), temporary);
  if (!file) return unix_now();
  const double now = last_heartbeat(temporary);
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
  const double first = last_heartbeat(lock);
  for (; is_fresh(lock, server_now(lock)); std::this_thread::sleep_for(kListen))
    if (last_heartbeat(lock) > first) return true;
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

FolderLost::FolderLost(const fs::path& folder, Hold hold)
    : Error(hold == Hold::gone
                ? "the run's folder, or its lock file, was removed while it trained"
                : "another job took over the run while this job was stopped or cut off from the file system",
            folder.string(),
            hold == Hold::gone ? "start the run again"
                               : "let that job continue; this job has stopped writing") {}

HeldFolder::HeldFolder(RunFolder folder, std::chrono::milliseconds beat) : folder_(std::move(folder)) {
  thread_ = std::thread([this, beat] { keep_beating(beat); });
}

HeldFolder::~HeldFolder() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HeldFolder::check() {
  if (hold_ == Hold::ours) hold_ = folder_.lock.hold();
  refuse_if_lost();
}

void HeldFolder::refuse_if_lost() const {
  if (hold_ != Hold::ours) throw FolderLost(folder_.path, hold_);
}

void HeldFolder::write_whole(const std::string& name,
                             const std::function<void(const base::ByteSink&)>& write) {
  base::write_whole((folder_.path / name).string(), write, [this] { check(); });
}

void HeldFolder::on_heartbeat(std::function<void(bool)> action) {
  const std::lock_guard lock(action_mutex_);
  action_ = std::move(action);
}

void HeldFolder::wake_heartbeat() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(wanted_, true)) changed_.notify_all();
}

void HeldFolder::keep_beating(std::chrono::milliseconds beat) {
  const auto shortest = std::min<std::chrono::milliseconds>(beat / 5, std::chrono::seconds(1));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, shortest, [this] { return ended_; })) {
    changed_.wait_for(lock, beat - shortest, [this] { return ended_ || wanted_; });
    if (ended_) return;
    const bool wanted = std::exchange(wanted_, false);
    lock.unlock();
    folder_.lock.renew();
    hold_ = folder_.lock.hold();
    if (hold_ != Hold::ours) return;  // the trainer learns of it from refuse_if_lost()
    {
      const std::lock_guard while_it_runs(action_mutex_);
      if (action_) action_(wanted);
    }
    lock.lock();
  }
}

constexpr const char* kConfigFile = "config.yaml";

std::string config_text_of(const fs::path& folder) {
  constexpr size_t kMostBytes = 4 << 20;  // a config of a megabyte, resolved
  return base::read_small_file((folder / kConfigFile).string(), kMostBytes, "the run's config");
}

namespace {

fs::path folder_of(const RunSettings& run, int number) {
  return fs::path(run.dir) / (number == 1 ? run.name : format("{}-{}", run.name, number));
}

[[noreturn]] void cannot_make(const fs::path& path, int reason) {
  refuse_folder("cannot create the run folder", path, reason);
}

uid_t owner_of(const fs::path& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? facts.st_uid : ::geteuid();
}

// By doing it: a file system may be read-only, full or no place for files whatever the permissions say.
// Returns the owner of new files there, as which NFS may store another user.
uid_t check_writable(const fs::path& folder) {
  auto probe = (folder / ".lockstep-XXXXXX").string();
  if (!::mkdtemp(probe.data())) cannot_make(folder, errno);
  const auto owner = owner_of(probe);
  ::rmdir(probe.c_str());
  return owner;
}

void make_parents(const fs::path& path) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  if (failed) cannot_make(path.parent_path(), failed.value());
}

// Nothing but what a start leaves that was killed before it came to anything.
bool is_blank(const fs::path& path) {
  std::error_code failed;
  for (fs::directory_iterator entry(path, failed), end; !failed && entry != end; entry.increment(failed)) {
    const auto name = entry->path().filename().string();
    if (name != "lock" && !base::is_leftover(name)) return false;
  }
  return !failed;
}

// mkdir either makes the folder or says that somebody else has, and the lock says who of two has it.
std::optional<RunFolder> try_new(const fs::path& path, const Settings& settings) {
  if (::mkdir(path.c_str(), 0755) != 0) {
    if (errno != EEXIST) cannot_make(path, errno);
    if (!is_blank(path) || is_of_another_user(path)) return std::nullopt;
  }
  auto lock = RunLock::take(path);
  if (!lock || !is_blank(path)) return std::nullopt;
  begin_in(path, settings);
  return RunFolder{path, std::move(*lock)};
}

config::PastConfig config_in(const fs::path& folder) {
  return config::read_past_config(config_text_of(folder), (folder / kConfigFile).string());
}

// With what the run of `then` chose in place of what was left open.
std::vector<std::string> differences_as_begun(const config::PastConfig& then, Settings asked) {
  config::take_over(then, asked);
  return config::differences(then, asked);
}

// A finished run goes on only if it is now asked to be longer than it became.
bool is_finished(const fs::path& folder, const TrainSettings& now) {
  try {
    const auto status = read_status(folder);
    if (status.state != RunState::done) return false;
    if (status.reason == "max_steps") return now.max_steps > 0 && status.step >= now.max_steps;
    if (status.reason == "max_seconds") return now.max_seconds > 0 && status.seconds >= now.max_seconds;
    return status.reason != "epochs" || status.epoch >= now.epochs;
  } catch (const std::exception&) {
    return false;  // killed before it could say anything
  }
}

RunFolder resumed(const fs::path& path, RunLock lock) {
  log::info("resuming " + path.string());
  return {path, std::move(lock)};
}

std::vector<int> existing(const RunSettings& run) {
  std::vector<int> numbers;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run.dir, ignored)) {
    const auto name = entry.path().filename().string();
    if (name == run.name) numbers.push_back(1);
    if (!name.starts_with(run.name + "-")) continue;
    const auto number = base::number_in(name.substr(run.name.size() + 1)).value_or(0);
    if (number > 1 && number < 1'000'000'000 && name == format("{}-{}", run.name, number))
      numbers.push_back(static_cast<int>(number));
  }
  std::sort(numbers.rbegin(), numbers.rend());
  return numbers;
}

std::optional<RunFolder> try_resuming(const fs::path& path, const Settings& asked) {
  config::PastConfig then;
  try {
    if (is_of_another_user(path)) throw InputError("it belongs to another user", path.string());
    then = config_in(path);
  } catch (const InputError& error) {
    log::info(path.string() + " is skipped: " + error.what() + " (" + error.where() + ")");
    return std::nullopt;
  }
  if (then.settings.run.name != asked.run.name) return std::nullopt;
  auto lock = RunLock::take(path);
  if (!lock) {
    log::info(path.string() + " is in use by another job");
    return std::nullopt;
  }
  if (is_finished(path, asked.train)) return std::nullopt;
  const auto different = differences_as_begun(then, asked);
  if (different.empty()) return resumed(path, std::move(*lock));
  log::info(format("{} has a different config: {}. To resume it anyway, pass --resume {}", path.string(),
                   base::join(different, ", "), path.string()));
  return std::nullopt;
}

std::optional<RunFolder> newest_unfinished(const Settings& asked) {
  for (const int number : existing(asked.run)) {
    const auto path = folder_of(asked.run, number);
    if (!fs::exists(fs::symlink_status(path / kConfigFile))) continue;
    if (auto folder = try_resuming(path, asked)) return folder;
  }
  log::info("no unfinished run found: starting a new run");
  return std::nullopt;
}

RunFolder named_folder(const fs::path& path, const Settings& asked) {
  if (!fs::exists(fs::symlink_status(path / kConfigFile)))
    throw InputError(
        "not a run folder: it holds no config.yaml", path.string(),
        base::did_you_mean_file(path.string()) + "pass a folder like runs/mnist, a checkpoint, or auto");
  const auto then = config_in(path);
  auto lock = RunLock::take(path);
  if (!lock)
    throw InputError("the run is in use by another job", path.string(), "wait for it, or start a new run");
  const auto different = base::join(differences_as_begun(then, asked), ", ");
  if (!different.empty() && asked.train.exact == SameBits::required)
    throw InputError("the config has changed: " + different, "train.exact: required",
                     format("run lockstep train {0} --resume {0}, or set train.exact to off", path.string()));
  if (!different.empty()) log::info("the config has changed: " + different);
  if (is_finished(path, asked.train))
    log::warning("this run has finished; to train longer, raise train.epochs or the limit that ended it");
  return resumed(path, std::move(*lock));
}

}  // namespace

bool is_of_another_user(const fs::path& path) {
  const auto owner = owner_of(path);
  return owner != ::geteuid() && owner != check_writable(path.parent_path());
}

void begin_in(const fs::path& folder, const Settings& settings) {
  base::remove_leftovers(folder.string());
  base::remove_leftovers((folder / "checkpoints").string());
  base::replace_file((folder / kConfigFile).string(), config::to_yaml(settings));
}

void check_run_dir(const RunSettings& run) {
  auto there = fs::absolute(folder_of(run, 1)).parent_path();
  std::error_code failed;
  while (there.has_relative_path() && !fs::exists(there, failed) && !failed) there = there.parent_path();
  check_writable(there);
}

std::optional<RunFolder> resume_run(const Settings& asked, const std::string& resume) {
  if (resume == "auto") return newest_unfinished(asked);
  return named_folder(resume, asked);
}

RunFolder new_run(const Settings& settings) {
  make_parents(folder_of(settings.run, 1));
  for (int number = 1;; ++number)
    if (auto folder = try_new(folder_of(settings.run, number), settings)) return std::move(*folder);
}

}  // namespace lockstep::run_folder
