#include "lockstep/base/files/output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::base {

void open_standard_descriptors() {
  int number = 0;
  do {
    number = ::open("/dev/null", O_RDWR);  // takes the lowest that is free
  } while (number >= 0 && number <= STDERR_FILENO);
  if (number >= 0) ::close(number);
}

}  // namespace lockstep::base

namespace lockstep::output {
namespace {

std::atomic<int> first_error{0};

// Another process may have made the pipe non-blocking.
bool can_retry(int error) {
  if (error == EINTR) return true;
  if (error != EAGAIN) return false;
  pollfd room{STDOUT_FILENO, POLLOUT, 0};
  ::poll(&room, 1, -1);
  return true;
}

}  // namespace

bool print(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (wrote > 0) done += static_cast<size_t>(wrote);
    if (wrote >= 0 || can_retry(errno)) continue;
    int none = 0;
    if (errno != EPIPE) first_error.compare_exchange_strong(none, errno);
    break;
  }
  return first_error == 0;
}

void line(const std::string& text) {
  print(base::readable(text) + "\n");
}

void check() {
  if (first_error == 0) return;
  throw Error(format("the output cannot be written: {}", std::strerror(first_error)), "standard output",
              "check for a full disk with df");
}

}  // namespace lockstep::output
