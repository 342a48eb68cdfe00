#include "lockstep/base/files/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::base {
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
