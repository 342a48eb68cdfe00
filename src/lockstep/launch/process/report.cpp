#include "lockstep/launch/process/report.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/fault.h"
#include "lockstep/base/fault_json.h"
#include "lockstep/base/write_all.h"
#include "lockstep/launch/process/doctor_hint.h"

namespace lockstep::launch {
namespace {

constexpr const char* kVariable = "LOCKSTEP_ERRORS";

std::optional<int> number_in(const char* text) {
  int number = 0;
  const char* end = text + std::strlen(text);
  const auto [at, failed] = std::from_chars(text, end, number);
  return failed == std::errc() && at == end ? std::optional(number) : std::nullopt;
}

// A number that was meant for a parent of ours may be some file of this process by now.
bool is_pipe(int descriptor) {
  struct stat facts {};
  return ::fstat(descriptor, &facts) == 0 && (S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode));
}

// Who reads a pipe may have stopped to: this process has others to tell.
bool takes_more(int descriptor) {
  constexpr int kTakesWithin = 1000;  // milliseconds
  pollfd waited{descriptor, POLLOUT, 0};
  return ::poll(&waited, 1, kTakesWithin) == 1 && (waited.revents & POLLOUT) != 0;
}

// Another user's link would lead to a file of that user's choice. Nobody may read a pipe that has a name.
int open_to_append(const char* path) {
  struct stat facts {};
  const bool link = ::lstat(path, &facts) == 0 && S_ISLNK(facts.st_mode);
  if (link && facts.st_uid != ::geteuid() && facts.st_uid != 0) return -1;
  const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  return ::open(path, link ? flags : flags | O_NOFOLLOW, 0666);
}

}  // namespace

std::string fault_as_json(const std::exception& error) {
  auto json = base::to_json(fault_of(error));
  json["exit"] = exit_status(error);
  return base::as_line(json);
}

std::string report_of(const std::exception& error) {
  return with_doctor(describe(error), fault_of(error).code);
}

void note_fault(const std::exception& error) noexcept {
  const char* place = std::getenv(kVariable);
  if (!place || !*place) return;
  std::signal(SIGPIPE, SIG_IGN);  // this process ends, and its error is to be said
  try {
    const auto line = fault_as_json(error) + "\n";
    if (const auto number = number_in(place)) {
      if (is_pipe(*number) && takes_more(*number)) base::write_all(*number, line);
      return;
    }
    const base::Descriptor file(open_to_append(place));
    if (file) base::write_all(file.number(), line);
  } catch (const std::exception&) {  // the error itself is said all the same
  }
}

}  // namespace lockstep::launch
