#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/format.h"
#include "base/text.h"

namespace lockstep {
namespace {

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
  const Descriptor file(::open(given.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file || ::fstat(file.number(), &facts) != 0) {
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

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()) || file.bad()) {
    throw InputError("cannot read: " + reason(), path, "check the path and its permissions");
  }
  return text.str();
}

}  // namespace lockstep
