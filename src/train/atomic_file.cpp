#include "train/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace lockstep::train {
namespace {

bool write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

void replace_file(const std::filesystem::path& path, const std::string& text) {
  const auto temporary = path.string() + ".tmp";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool good = fd >= 0 && write_all(fd, text) && ::fsync(fd) == 0;
  int reason = errno;
  if (fd >= 0) ::close(fd);
  if (good && ::rename(temporary.c_str(), path.c_str()) != 0) {
    good = false;
    reason = errno;
  }
  if (good) return;
  ::unlink(temporary.c_str());
  throw Error(std::string("cannot write: ") + std::strerror(reason), path.string(),
              "free some space, or point run.dir at a folder that can be written");
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()) || file.bad()) {
    throw InputError(std::string("cannot read: ") + std::strerror(errno), path.string());
  }
  return text.str();
}

}  // namespace lockstep::train
