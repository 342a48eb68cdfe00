#include "trainer/run_folder/folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "trainer/config/config_text.h"
#include "trainer/config/past_config.h"
#include "trainer/run_folder/status.h"

namespace lockstep::run_folder {

namespace fs = std::filesystem;

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

void HeldFolder::on_beat(std::function<void()> action) {
  const std::lock_guard lock(action_mutex_);
  action_ = std::move(action);
}

void HeldFolder::beat_soon() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(wanted_, true)) changed_.notify_all();
}

void HeldFolder::keep_beating(std::chrono::milliseconds beat) {
  const auto shortest = std::min<std::chrono::milliseconds>(beat / 5, std::chrono::seconds(1));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, shortest, [this] { return ended_; })) {
    changed_.wait_for(lock, beat - shortest, [this] { return ended_ || wanted_; });
    if (ended_) return;
    wanted_ = false;
    lock.unlock();
    folder_.lock.renew();
    hold_ = folder_.lock.hold();
    if (hold_ != Hold::ours) return;  // the trainer learns of it from refuse_if_lost()
    {
      const std::lock_guard while_it_runs(action_mutex_);
      if (action_) action_();
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
  refuse_folder("the run folder cannot be made", path, reason);
}

// By doing it: a file system may be read-only, full or no place for files whatever the permissions say.
void check_writable(const fs::path& folder) {
  auto probe = (folder / ".lockstep-XXXXXX").string();
  if (!::mkdtemp(probe.data())) cannot_make(folder, errno);
  ::rmdir(probe.c_str());
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
    if (!is_blank(path)) return std::nullopt;
  }
  auto lock = RunLock::take(path);
  if (!lock || !is_blank(path)) return std::nullopt;
  RunFolder folder{path, std::move(*lock)};
  begin_in(path, settings);
  return folder;
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
    if (status.reason == "epochs") return status.epoch >= now.epochs;
    return true;
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
    if (name.rfind(run.name + "-", 0) != 0) continue;
    const auto digits = name.substr(run.name.size() + 1);
    if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos)
      continue;
    const int number = std::stoi(digits);
    if (number > 1 && std::to_string(number) == digits) numbers.push_back(number);
  }
  std::sort(numbers.rbegin(), numbers.rend());
  return numbers;
}

std::optional<RunFolder> try_resuming(const fs::path& path, const Settings& asked) {
  config::PastConfig then;
  try {
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
  log::info(format("{} has a different config: {}; to resume it anyway: --resume {}", path.string(),
                   base::join(different, ", "), path.string()));
  return std::nullopt;
}

std::optional<RunFolder> newest_unfinished(const Settings& asked) {
  for (const int number : existing(asked.run)) {
    const auto path = folder_of(asked.run, number);
    if (!fs::exists(fs::symlink_status(path / kConfigFile))) continue;
    if (auto folder = try_resuming(path, asked)) return folder;
  }
  log::info("no run to resume: a new run");
  return std::nullopt;
}

RunFolder named_folder(const fs::path& path, const Settings& asked) {
  if (!fs::exists(fs::symlink_status(path / kConfigFile))) {
    throw InputError("not a run folder: it holds no config.yaml", path.string(),
                     "pass a folder like runs/mnist, a checkpoint, or auto");
  }
  const auto then = config_in(path);
  auto lock = RunLock::take(path);
  if (!lock) {
    throw InputError("the run is in use by another job", path.string(), "wait for it, or start a new run");
  }
  const auto different = base::join(differences_as_begun(then, asked), ", ");
  if (!different.empty() && asked.train.exact == SameBits::required)
    throw InputError("the config has changed: " + different, "train.exact: required",
                     "resume with the config of the run, or set train.exact to off");
  if (!different.empty()) log::info("the config has changed: " + different);
  return resumed(path, std::move(*lock));
}

}  // namespace

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
