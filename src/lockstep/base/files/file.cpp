#include "lockstep/base/files/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"

namespace lockstep::base {

// What the signal handler may look at.
struct MapSlot {
  std::atomic<uintptr_t> begin = 0, end = 0;  // 0: free
  std::atomic<int> protection = 0;
  std::atomic<bool> cut = false;
  const FileMap* map = nullptr;  // under the mutex
};

namespace {

struct Maps {
  std::mutex mutex;
  std::array<MapSlot, 2048> slots;
  size_t used = 0;  // of the slots, once
  struct sigaction before {};
  uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
};

Maps& maps() {
  static Maps all;
  return all;
}

MapSlot* slot_at(uintptr_t address) {
  for (auto& slot : maps().slots)
    if (address >= slot.begin.load() && address < slot.end.load()) return &slot;
  return nullptr;
}

// Zeros from the page that is gone to the map's end: the read goes on, and refuse_cut() tells.
bool fill_with_zeros(uintptr_t address) {
  auto* slot = slot_at(address);
  if (!slot) return false;
  const uintptr_t begin = address / maps().page * maps().page;
  void* const place = reinterpret_cast<void*>(begin);  // NOLINT(performance-no-int-to-ptr): a fault's address
  if (::mmap(place, slot->end.load() - begin, slot->protection.load(),
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    return false;
  slot->cut = true;
  return true;
}

void on_bus_error(int, siginfo_t* facts, void*) {
  const int error = errno;
  const bool was_sent = facts->si_code <= 0;  // by a process: it has no address
  if (was_sent || !fill_with_zeros(reinterpret_cast<uintptr_t>(facts->si_addr))) {
    ::sigaction(SIGBUS, &maps().before,
                nullptr);  // an access comes again, and meets whoever was there before
    if (was_sent) ::raise(SIGBUS);
  }
  errno = error;
}

void watch_bus_errors() {
  static const bool installed = [] {
    struct sigaction ours {};
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;
    return ::sigaction(SIGBUS, &ours, &maps().before) == 0;
  }();
  std::ignore = installed;
}

MapSlot* take_slot(const FileMap& map, int protection) {
  const auto begin = reinterpret_cast<uintptr_t>(map.data());
  const std::lock_guard lock(maps().mutex);
  for (size_t i = 0; i < maps().slots.size(); ++i) {
    auto& slot = maps().slots[i];
    if (slot.begin.load() != 0) continue;
    slot.cut = false;
    slot.protection = protection;
    slot.map = &map;
    slot.begin = begin;
    slot.end = begin + map.size();
    maps().used = std::max(maps().used, i + 1);
    return &slot;
  }
  return nullptr;
}

void give_back(MapSlot& slot) {
  const std::lock_guard lock(maps().mutex);
  slot.end = 0;
  slot.begin = 0;
  slot.map = nullptr;
}

}  // namespace

FileMap::FileMap(int file, int64_t offset, size_t bytes, int protection, int flags, std::string name)
    : name_(std::move(name)), end_(offset + static_cast<int64_t>(bytes)), bytes_(bytes) {
  watch_bus_errors();
  if ((protection & PROT_WRITE) == 0) file_ = Descriptor(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  data_ = ::mmap(nullptr, bytes, protection, flags, file, offset);
  if (data_ == MAP_FAILED)
    throw Error(format("cannot map {} bytes: {}", bytes, std::strerror(errno)), name_,
                "ask for more memory, and look at the limit of ulimit -v");
  slot_ = take_slot(*this, protection);
}

FileMap::~FileMap() {
  if (slot_) give_back(*slot_);
  ::munmap(data_, bytes_);
}

void FileMap::make_read_only() const {
  ::mprotect(data_, bytes_, PROT_READ);
  if (slot_) slot_->protection = PROT_READ;
}

bool FileMap::was_cut() const {
  if (slot_ && slot_->cut.load()) return true;
  struct stat facts {};
  return file_ && ::fstat(file_.number(), &facts) == 0 && facts.st_size < end_;
}

void FileMap::refuse_cut() const {
  if (!was_cut()) return;
  throw Error("the file became shorter while it was read, or its disk could not be read", name_,
              "leave a file alone while a run reads it; put it back, and start again");
}

void refuse_cut_files() {
  const std::lock_guard lock(maps().mutex);
  for (size_t i = 0; i < maps().used; ++i)
    if (const auto* map = maps().slots[i].map) map->refuse_cut();
}

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 2000;  // a folder of images is not searched for a typing error

bool lies_there(const fs::path& path) {
  std::error_code failed;
  return fs::status(path, failed).type() !=
         fs::file_type::not_found;  // what may not be looked at may be there
}

std::vector<fs::path> entries_in(const fs::path& folder) {
  std::vector<fs::path> names;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed); !failed && at != fs::directory_iterator();
       at.increment(failed)) {
    if (names.size() == kMostEntries) return {};
    names.push_back(at->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A letter wrong before the same extension, or another extension: of "a.yaml" "b.yaml" is no slip.
fs::path near_name(const fs::path& folder, const fs::path& name) {
  const auto names = entries_in(folder);
  std::vector<std::string> stems;
  for (const auto& other : names) {
    if (other.extension() == name.extension()) stems.push_back(other.stem().string());
  }
  if (const auto near = nearest(name.stem().string(), stems)) return *near + name.extension().string();
  const auto same_stem = std::find_if(names.begin(), names.end(),
                                      [&](const auto& other) { return other.stem() == name.stem(); });
  return same_stem == names.end() ? fs::path() : *same_stem;
}

// The folder, or the one that was meant.
fs::path folder_for(const fs::path& folder) {
  if (folder.empty() || lies_there(find_path(folder.string()))) return folder;
  return nearest_file(folder.string());
}

}  // namespace

std::string nearest_file(const std::string& path) {
  const fs::path wanted(path);
  const auto name = wanted.filename();
  if (name.empty() || path.size() > kLongestPath || path.find('\0') != path.npos ||
      lies_there(find_path(path)))
    return "";
  const auto folder = folder_for(wanted.parent_path());
  if (folder.empty() && wanted.has_parent_path()) return "";
  if (folder != wanted.parent_path() && lies_there(find_path((folder / name).string()))) return folder / name;
  for (const auto& place : {"." / folder, home_folder() / folder}) {
    const auto near = near_name(place, name);
    if (!near.empty()) return folder / near;
  }
  return "";
}

std::string did_you_mean_file(const std::string& path) {
  const auto near = nearest_file(path);
  return near.empty() ? "" : format("did you mean {}? ", printable(near, kLongestPath));
}

namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

std::string shown(const std::string& path) {
  return path.empty() ? "no name was given" : printable(path, kLongestPath);
}

void refuse_unless_regular(const struct stat& facts, const std::string& path, const std::string& what,
                           const std::string& hint) {
  if (S_ISREG(facts.st_mode)) return;
  throw InputError(format("{} is {}, not a file", what, kind_of(facts.st_mode)), shown(path), hint);
}

// What a person can fix by naming another place.
bool is_of_the_place(int reason) {
  static constexpr std::array kReasons = {EACCES, EPERM, EROFS, ENOENT, ENOTDIR, ELOOP, EISDIR, ENXIO};
  return std::find(kReasons.begin(), kReasons.end(), reason) != kReasons.end();
}

[[noreturn]] void too_large(const std::string& path, const std::string& what, const std::string& size) {
  throw InputError(format("{} is too large: {}", what, size), shown(path), "is it the right file?");
}

}  // namespace

RegularFile::RegularFile(const std::string& path, const std::string& what, const std::string& hint)
    : path_(path), what_(what), hint_(hint) {
  struct stat facts {};
  const auto check = [&](int code) {
    if (code != 0) fail();
    refuse_unless_regular(facts, path, what, hint.empty() ? "give a regular file" : hint);
  };
  errno = EINVAL;  // C's functions would see another name
  if (path.find('\0') != std::string::npos) fail();
  check(::stat(path.c_str(), &facts));  // before opening, because opening a device can already do something
  file_ = Descriptor(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!file_) fail();
  check(::fstat(file_.number(), &facts));
  size_ = static_cast<size_t>(facts.st_size);
}

void RegularFile::fail() const {
  throw InputError(format("{} cannot be read: {}", what_, std::strerror(errno)), shown(path_),
                   hint_.empty() ? "check the path and its permissions" : hint_);
}

size_t RegularFile::read(void* into, size_t size) {
  while (true) {
    const ssize_t got = ::read(file_.number(), into, size);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) fail();
  }
}

size_t RegularFile::read_at(size_t offset, void* into, size_t size) const {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(file_.number(), static_cast<char*>(into) + done, size - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail();
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

Descriptor open_to_write(const std::string& path, const std::string& what, int flags) {
  struct stat facts {};
  const char* const hint = "move it away, or set run.dir to another folder";
  if (::stat(path.c_str(), &facts) == 0) refuse_unless_regular(facts, path, what, hint);
  constexpr int kOurs = O_RDWR | O_CREAT | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
  Descriptor file(::open(path.c_str(), kOurs | O_NOFOLLOW | flags, 0644));
  const int reason = errno;
  if (file && ::fstat(file.number(), &facts) == 0) {
    refuse_unless_regular(facts, path, what, hint);
    return file;
  }
  if (reason == ELOOP) throw InputError(format("{} is a link, not a file", what), shown(path), hint);
  const auto text = format("{} cannot be written: {}", what, std::strerror(reason));
  if (is_of_the_place(reason))
    throw InputError(text, shown(path), "set run.dir to a folder that you may write to");
  throw Error(text, shown(path), "free disk space, or set run.dir to a folder that can be written");
}

std::string read_small_file(const std::string& path, size_t limit, const std::string& what) {
  RegularFile file(path, what);
  if (file.size() > limit) too_large(path, what, format("{} bytes, at most {}", file.size(), limit));
  std::string text;
  // one byte more than the file had: a file that grew, and one of /proc, which has none until it is read
  for (size_t step = file.size() + 1; text.size() <= limit; step = size_t{64} << 10) {
    const size_t had = text.size();
    text.resize(had + step);
    text.resize(had + file.read(text.data() + had, step));
    if (text.size() == had) return text;
  }
  too_large(path, what, format("at most {} bytes", limit));
}

std::string read_text(const std::string& path) {
  constexpr size_t kLargest = 4 << 20;  // a config of a megabyte, resolved
  return read_small_file(path, kLargest, "the file");
}

}  // namespace lockstep::base
