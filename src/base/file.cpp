#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"

namespace lockstep {
namespace {

class Handle {
 public:
  explicit Handle(int number) : number_(number) {}
  ~Handle() {
    if (number_ >= 0) ::close(number_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

std::string reason() {
  return std::strerror(errno);
}

// asked before opening, because opening a device can already do something
void check(const struct stat& facts, const std::string& path, size_t limit, const std::string& what) {
  if (!S_ISREG(facts.st_mode)) {
    throw InputError(format("{} is {}, not a file", what, kind_of(facts.st_mode)), path,
                     "give a regular file");
  }
  if (static_cast<size_t>(facts.st_size) > limit) {
    throw InputError(format("{} is too large: {} bytes, at most {}", what, facts.st_size, limit), path,
                     "is it the right file?");
  }
}

}  // namespace

std::string read_small_file(const std::string& given, size_t limit, const std::string& what) {
  const std::string path = given.empty() ? "no name was given" : printable(given, 4096);
  struct stat facts {};
  if (given.find('\0') != std::string::npos || ::stat(given.c_str(), &facts) != 0) {
    throw InputError(format("{} cannot be read: {}", what, errno ? reason() : "no such name"), path,
                     "check the path and its permissions");
  }
  check(facts, path, limit, what);
  const Handle file(::open(given.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.number() < 0 || ::fstat(file.number(), &facts) != 0) {
    throw InputError(format("{} cannot be read: {}", what, reason()), path,
                     "check the path and its permissions");
  }
  check(facts, path, limit, what);
  std::string text(limit + 1, '\0');  // one more, to notice a file that grew
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.number(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw InputError(format("{} cannot be read: {}", what, reason()), path, "check the file system");
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > limit) {
    throw InputError(format("{} is too large: at most {} bytes", what, limit), path, "is it the right file?");
  }
  text.resize(size);
  return text;
}

}  // namespace lockstep
