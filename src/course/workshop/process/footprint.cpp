#include "course/workshop/process/footprint.h"

#include <dirent.h>
#include <sys/inotify.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "course/workshop/process/processes.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{40};
constexpr const char* kShared = "/dev/shm/";

// of the user's own: nobody else's is touched
std::map<std::string, ino_t> own_shared_files() {
  std::map<std::string, ino_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(kShared), ::closedir);
  while (const auto* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string name = entry->d_name;
    struct stat facts {};
    if (name == "." || name == ".." || ::lstat((kShared + name).c_str(), &facts) != 0) continue;
    if (facts.st_uid == ::geteuid()) found[name] = facts.st_ino;
  }
  return found;
}

// "/dev/shm/name/file" -> name
std::string shared_name(const std::string& path) {
  const std::string folder = kShared;
  if (!path.starts_with(folder)) return {};
  return path.substr(folder.size(), path.find('/', folder.size()) - folder.size());
}

std::set<std::string> opened_by(pid_t process) {
  std::set<std::string> names;
  const auto root = fs::path("/proc") / std::to_string(process);
  std::error_code gone;
  for (fs::directory_iterator link(root / "fd", gone), end; !gone && link != end; link.increment(gone)) {
    std::error_code none;
    names.insert(shared_name(fs::read_symlink(link->path(), none)));
  }
  std::ifstream maps(root / "maps");
  for (std::string line; std::getline(maps, line);) {
    if (const auto at = line.find(kShared); at != std::string::npos)
      names.insert(shared_name(line.substr(at)));
  }
  return names;
}

struct Memory {
  size_t own = 0, shared = 0;
};

// in kB, behind these words
Memory memory_of(pid_t process) {
  Memory memory;
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    size_t kilobytes = 0;
    if (!(words >> name >> kilobytes)) continue;
    if (name == "RssAnon:") memory.own = kilobytes << 10;
    if (name == "RssShmem:") memory.shared = kilobytes << 10;
  }
  return memory;
}

size_t bytes_below(const fs::path& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return 0;
  auto bytes = static_cast<size_t>(facts.st_blocks) * 512;
  std::error_code gone;
  if (S_ISDIR(facts.st_mode)) {
    for (fs::directory_iterator entry(path, gone), end; !gone && entry != end; entry.increment(gone))
      bytes += bytes_below(entry->path());
  }
  return bytes;
}

// "key shmid perms size cpid ...": the kernel's list of System V's segments, with who made them
void remove_segments_of(const std::set<pid_t>& makers) {
  std::ifstream list("/proc/sysvipc/shm");
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    long key = 0, segment = 0, permissions = 0, size = 0, maker = 0;
    if (!(words >> key >> segment >> permissions >> size >> maker)) continue;
    if (makers.count(static_cast<pid_t>(maker)) > 0) ::shmctl(static_cast<int>(segment), IPC_RMID, nullptr);
  }
}

}  // namespace

// none where the kernel has no more watches: then it is looked for as often as before
Footprint::Footprint(std::set<pid_t> others)
    : others_(std::move(others)),
      news_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      before_(own_shared_files()) {
  if (news_ && ::inotify_add_watch(news_.number(), kShared, IN_CREATE | IN_MOVED_TO) < 0) news_.close();
}

void Footprint::add_to(std::vector<pollfd>& waited) const {
  if (news_) waited.push_back({news_.number(), POLLIN, 0});
}

bool Footprint::hears_of_a_file() const {
  std::array<char, 4096> events;
  bool any = false;
  while (news_ && ::read(news_.number(), events.data(), events.size()) > 0) any = true;
  return any;
}

Footprint::~Footprint() {
  remove_segments_of(seen_);
  const auto there = own_shared_files();
  for (const auto& [name, file] : noted_) {
    const auto found = there.find(name);
    std::error_code none;
    if (found != there.end() && found->second == file) fs::remove_all(kShared + name, none);
  }
}

size_t Footprint::look() {
  const auto now = std::chrono::steady_clock::now();
  if (!hears_of_a_file() && now - looked_ < kBetweenLooks) return bytes_;
  looked_ = now;
  const auto processes = descendants_of(::getpid(), others_);
  seen_.insert(processes.begin(), processes.end());
  note_files(processes);
  size_t own = 0, shared = 0;
  for (const auto process : processes) {
    const auto memory = memory_of(process);
    own += memory.own;
    shared = std::max(shared, memory.shared);  // they may map the same
  }
  return bytes_ = own + std::max(shared, bytes_of_files());
}

// to ask each process costs some: only where there is a file that nobody knows
void Footprint::note_files(const std::set<pid_t>& processes) {
  auto fresh = own_shared_files();
  std::erase_if(fresh, [&](const auto& file) {
    const auto is_in = [&](const auto& known) {
      const auto found = known.find(file.first);
      return found != known.end() && found->second == file.second;
    };
    return is_in(before_) || is_in(noted_);
  });
  if (fresh.empty()) return;
  for (const auto process : processes) {
    for (const auto& name : opened_by(process)) {
      if (const auto found = fresh.find(name); found != fresh.end()) noted_[name] = found->second;
    }
  }
}

size_t Footprint::bytes_of_files() const {
  size_t bytes = 0;
  for (const auto& [name, file] : noted_) bytes += bytes_below(kShared + name);
  return bytes;
}

}  // namespace lockstep::workshop
