#include "lockstep/base/files/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"

namespace lockstep::base {

namespace fs = std::filesystem;

namespace {

struct sigaction former_handler {};  // of SIGBUS

void on_bus_error(int, siginfo_t* facts, void*) {
  constexpr std::string_view kText =
      "error: a file was truncated while it was read, or its disk cannot be read (SIGBUS)\n  hint: restore "
      "the file, start again, and do not change it while a run reads it\n";
  const bool is_chained = (former_handler.sa_flags & SA_SIGINFO) != 0 || former_handler.sa_handler != SIG_DFL;
  if (facts->si_code > 0 && is_chained) {  // the access is repeated, and the program's own handler called
    ::sigaction(SIGBUS, &former_handler, nullptr);
    return;
  }
  if (facts->si_code > 0) {  // from the kernel, not from another process
    write_all(STDERR_FILENO, kText);
    ::_exit(kFailed);
  }
  ::sigaction(SIGBUS, &former_handler, nullptr);
  ::raise(SIGBUS);
}

void catch_bus_errors() {
  static const bool installed = [] {
    struct sigaction ours {};
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGBUS, &ours, &former_handler) == 0;
  }();
  std::ignore = installed;
}

}  // namespace

FileMap::FileMap(int file, int64_t offset, size_t bytes, int protection, int flags, std::string name)
    : name_(std::move(name)), end_(offset + static_cast<int64_t>(bytes)), bytes_(bytes) {
  catch_bus_errors();
  if ((protection & PROT_WRITE) == 0) file_ = Descriptor(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  data_ = ::mmap(nullptr, bytes, protection, flags, file, offset);
  if (data_ == MAP_FAILED)
    throw Error(format("cannot map {} bytes: {}", bytes, std::strerror(errno)), name_,
                "ask for more memory, or raise the limit of ulimit -v");
}

FileMap::~FileMap() {
  ::munmap(data_, bytes_);
}

void FileMap::make_read_only() const {
  ::mprotect(data_, bytes_, PROT_READ);
}

void FileMap::refuse_cut() const {
  struct stat facts {};
  if (!file_ || ::fstat(file_.number(), &facts) != 0 || facts.st_size >= end_) return;
  throw Error("the file was truncated while it was read", name_,
              "restore the file, start again, and do not change it while a run reads it");
}

namespace {

bool is_there(const fs::path& path) {
  std::error_code failed;
  return fs::exists(find_path(path.string()), failed);
}

std::vector<std::string> names_in(const fs::path& folder) {
  constexpr size_t kMostEntries = 2000;  // a folder of images is not searched for a typing error
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    if (names.size() == kMostEntries) return {};
    names.push_back(at->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::uint64_t own_namespace(const char* kind) {
  struct stat facts {};
  return ::stat(format("/proc/self/ns/{}", kind).c_str(), &facts) == 0 ? facts.st_ino : 0;
}

std::string nearest_file(const std::string& path) {
  const fs::path wanted(path);
  const auto name = wanted.filename();
  if (name.empty() || path.size() > kLongestPath || path.find('\0') != path.npos || is_there(wanted))
    return "";
  auto folder = wanted.parent_path();
  if (!folder.empty() && !is_there(folder)) {
    folder = nearest_file(folder.string());
    if (folder.empty() || is_there(folder / name)) return folder.empty() ? "" : folder / name;
  }
  // files of one kind all end alike, so the names without their extensions have to be near
  for (const auto& place : {"." / folder, home_folder() / folder}) {
    std::vector<std::string> near;
    for (const auto& there : names_in(place))
      if (nearest(name.stem().string(), {fs::path(there).stem().string()})) near.push_back(there);
    if (const auto best = nearest(name.string(), near)) return folder / *best;
  }
  return "";
}

std::string did_you_mean_file(const std::string& path) {
  return did_you_mean(printable(nearest_file(path), kLongestPath));
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
  throw InputError(format("{} is {}, not a regular file", what, kind_of(facts.st_mode)), shown(path), hint);
}

// Errors that another path would avoid.
bool depends_on_path(int reason) {
  static constexpr std::array kReasons = {EACCES, EPERM, EROFS, ENOENT, ENOTDIR, ELOOP, EISDIR, ENXIO};
  return std::find(kReasons.begin(), kReasons.end(), reason) != kReasons.end();
}

[[noreturn]] void too_large(const std::string& path, const std::string& what, const std::string& size) {
  throw InputError(format("{} is too large: {}", what, size), shown(path), "check that it is the right file");
}

}  // namespace

RegularFile::RegularFile(const std::string& path, const std::string& what, const std::string& hint)
    : path_(path), what_(what), hint_(hint) {
  struct stat facts {};
  const auto check = [&](int code) {
    if (code != 0) fail();
    refuse_unless_regular(facts, path, what, hint.empty() ? "give a regular file" : hint);
  };
  errno = EINVAL;  // a name with a NUL would be cut off
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
  if (depends_on_path(reason))
    throw InputError(text, shown(path), "set run.dir to a folder that you may write to");
  throw Error(text, shown(path), "free disk space, or set run.dir to a folder that can be written");
}

std::string read_small_file(const std::string& path, size_t limit, const std::string& what) {
  RegularFile file(path, what);
  if (file.size() > limit) too_large(path, what, format("{} bytes, at most {}", file.size(), limit));
  std::string text;
  // one byte more than the size, because a file may grow, and a file in /proc has size 0 until it is read
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
