#include "lockstep/base/capture.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "lockstep/base/program.h"

namespace lockstep::base {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostOutput = 1 << 20;

int left(Clock::time_point deadline) {
  const auto rest = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<long long>(0, rest));
}

// false where time or room ran out
bool read_all(int input, Clock::time_point deadline, std::string& text) {
  std::array<char, 4096> part;
  while (text.size() < kMostOutput) {
    pollfd ready{input, POLLIN, 0};
    const int polled = poll(&ready, 1, left(deadline));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) return false;
    const ssize_t n = read(input, part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0;
    text.append(part.data(), static_cast<size_t>(n));
  }
  return false;
}

// a child that closed its output may live on, so its end is waited for no longer than the rest
bool succeeded(pid_t child, Clock::time_point deadline) {
  int status = 0;
  while (true) {
    const pid_t done = waitpid(child, &status, WNOHANG);
    if (done == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (done < 0 && errno != EINTR) return false;
    if (left(deadline) == 0) break;
    std::this_thread::sleep_for(milliseconds(2));
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return false;
}

}  // namespace

std::optional<std::string> capture(const std::vector<std::string>& argv, milliseconds timeout,
                                   const std::vector<std::string>& settings) {
  std::array<int, 2> pipe_ends{};
  if (argv.empty() || pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const auto deadline = Clock::now() + timeout;
  pid_t child = -1;
  const bool started = start_program({argv, settings, pipe_ends[1]}, child) == 0;
  close(pipe_ends[1]);
  std::string text;
  const bool complete = started && read_all(pipe_ends[0], deadline, text);
  close(pipe_ends[0]);
  if (!started) return std::nullopt;
  const bool ended_well = succeeded(child, complete ? deadline : Clock::now());
  return complete && ended_well ? std::optional(text) : std::nullopt;
}

}  // namespace lockstep::base
