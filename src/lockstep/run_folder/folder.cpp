#include "lockstep/run_folder/folder.h"

#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/config/write.h"
#include "lockstep/run_folder/status.h"

namespace lockstep::run_folder {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.yaml";

/// Aliases of aliases make a few lines as long as one likes.
void flatten_into(const YAML::Node& node, const std::string& path, size_t& left, FlatConfig& flat) {
  if (left-- == 0)
    throw InputError("too many keys for a config", path, "aliases of aliases are not needed here");
  if (!node.IsMap()) {
    flat[path] = YAML::Dump(node);
    return;
  }
  for (const auto& item : node) {
    const auto name = item.first.as<std::string>();
    flatten_into(item.second, path.empty() ? name : path + "." + name, left, flat);
  }
}

// Where a run is started, not what it trains.
bool is_about_the_place(const std::string& key) {
  static constexpr std::array<const char*, 3> kPlace = {"launch.", "run.dir", "data.stage"};
  return std::any_of(kPlace.begin(), kPlace.end(),
                     [&](const char* prefix) { return key.rfind(prefix, 0) == 0; });
}

double number(const FlatConfig& config, const std::string& key) {
  const auto found = config.find(key);
  try {
    return found == config.end() ? 0 : std::stod(found->second);
  } catch (const std::exception&) {
    return 0;
  }
}

// A run may be asked to go on for longer than it was; 0 is without an end, but for epochs.
bool is_only_longer(const std::string& key, const FlatConfig& then, const FlatConfig& now) {
  static constexpr std::array<const char*, 3> kLengths = {"train.epochs", "train.max_steps",
                                                          "train.max_seconds"};
  if (std::find(kLengths.begin(), kLengths.end(), key) == kLengths.end()) return false;
  const double before = number(then, key), after = number(now, key);
  return (before > 0 && after == 0 && key != kLengths[0]) || (before > 0 && after >= before);
}

// A key that the lockstep of that day did not know had the value that it has by default now.
std::string value_in(const FlatConfig& config, const std::string& key) {
  static const FlatConfig defaults = flatten(config::to_yaml(Settings()));
  for (const auto* source : {&config, &defaults}) {
    if (const auto found = source->find(key); found != source->end()) return found->second;
  }
  return "not set";
}

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
std::optional<RunFolder> try_new(const fs::path& path, const std::string& config) {
  if (::mkdir(path.c_str(), 0755) != 0) {
    if (errno != EEXIST) cannot_make(path, errno);
    if (!is_blank(path)) return std::nullopt;
  }
  auto lock = RunLock::take(path);
  if (!lock || !is_blank(path)) return std::nullopt;
  RunFolder folder{path, std::move(*lock)};
  begin_in(path, config);
  return folder;
}

RunFolder new_folder(const RunSettings& run, const std::string& config, const fs::path& but = {}) {
  make_parents(folder_of(run, 1));
  for (int number = 1;; ++number) {
    const auto path = folder_of(run, number);
    if (path == but) continue;
    if (auto folder = try_new(path, config)) return std::move(*folder);
  }
}

std::optional<FlatConfig> config_in(const fs::path& folder) {
  try {
    return flatten(base::read_text(folder / kConfigFile));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// A finished run goes on only if it is now asked to be longer than it became.
bool is_finished(const fs::path& folder, const FlatConfig& now) {
  try {
    const auto status = read_status(folder);
    if (status.state != RunState::done) return false;
    const double most = number(now, "train.max_steps");
    if (status.reason == "max_steps") return most > 0 && static_cast<double>(status.step) >= most;
    if (status.reason == "epochs") return static_cast<double>(status.epoch) >= number(now, "train.epochs");
    return true;
  } catch (const std::exception&) {
    return false;  // killed before it could say anything
  }
}

RunFolder go_on(const fs::path& path, RunLock lock, std::vector<std::string> notes) {
  notes.push_back("going on with " + path.string());
  return {path, std::move(lock), true, std::move(notes)};
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

RunFolder newest_unfinished(const RunSettings& run, const std::string& config) {
  const auto now = flatten(config);
  std::vector<std::string> notes;
  for (const int number : existing(run)) {
    const auto path = folder_of(run, number);
    const auto then = config_in(path);
    if (!then || value_in(*then, "run.name") != value_in(now, "run.name")) continue;
    auto lock = RunLock::take(path);
    if (!lock) {
      notes.push_back(path.string() + " is in use by another job");
      continue;
    }
    if (is_finished(path, now)) continue;
    const auto different = differences(*then, now);
    if (different.empty()) return go_on(path, std::move(*lock), std::move(notes));
    notes.push_back(path.string() + " has another config: " + base::join(different, ", "));
  }
  auto folder = new_folder(run, config);
  folder.notes = std::move(notes);
  folder.notes.push_back("nothing to go on with: a new run");
  return folder;
}

FlatConfig config_of_run(const fs::path& path) {
  if (auto config = config_in(path)) return *config;
  throw InputError("this is no run's folder: it holds no config.yaml", path.string(),
                   "pass a folder like runs/mnist, a checkpoint, or auto");
}

RunFolder named_folder(const fs::path& path, const std::string& config) {
  const auto then = config_of_run(path);
  auto lock = RunLock::take(path);
  if (!lock) {
    throw InputError("the run is in use by another job", path.string(), "wait for it, or start a new run");
  }
  std::vector<std::string> notes;
  const auto different = differences(then, flatten(config));
  if (!different.empty()) notes.push_back("the config has changed: " + base::join(different, ", "));
  return go_on(path, std::move(*lock), std::move(notes));
}

}  // namespace

void begin_in(const fs::path& folder, const std::string& config) {
  base::remove_leftovers(folder.string());
  base::remove_leftovers((folder / "checkpoints").string());
  base::replace_file((folder / kConfigFile).string(), config);
}

RunFolder open_successor(const RunSettings& run, const std::string& config, const fs::path& removed) {
  return new_folder(run, config, removed);
}

FlatConfig flatten(const std::string& yaml) {
  FlatConfig flat;
  size_t left = 10'000;
  flatten_into(YAML::Load(yaml), "", left, flat);
  return flat;
}

std::vector<std::string> differences(const FlatConfig& then, const FlatConfig& now) {
  FlatConfig all = then;
  all.insert(now.begin(), now.end());
  std::vector<std::string> different;
  for (const auto& [key, value] : all) {
    const auto before = value_in(then, key), after = value_in(now, key);
    if (before == after || is_about_the_place(key) || is_only_longer(key, then, now)) continue;
    different.push_back(format("{} (was {}, is {})", key, before, after));
  }
  return different;
}

void check_run_folder(const fs::path& path) {
  config_of_run(path);
  check_writable(path);
}

void check_run_dir(const RunSettings& run) {
  auto there = fs::absolute(folder_of(run, 1)).parent_path();
  std::error_code failed;
  while (there.has_relative_path() && !fs::exists(there, failed) && !failed) there = there.parent_path();
  check_writable(there);
}

RunFolder open_run_folder(const RunSettings& run, const std::string& config, const std::string& resume) {
  if (resume == "auto") return newest_unfinished(run, config);
  if (!resume.empty() && fs::is_directory(resume)) return named_folder(resume, config);
  return new_folder(run, config);
}

}  // namespace lockstep::run_folder
