#include "lockstep/base/capture.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

namespace lockstep::base {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostOutput = 1 << 20;

int left(Clock::time_point deadline) {
  const auto rest = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<long long>(0, rest));
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// our handlers and blocked signals are ours; the child starts with the usual ones
void set_plain_signals(posix_spawnattr_t& attributes) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

// a name that is there twice would mean one thing to C and another to a shell
std::vector<std::string> environment_with(const std::vector<std::string>& settings) {
  std::vector<std::string> result = settings;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    const auto is_same = [&](const std::string& setting) {
      return !name.empty() && setting.starts_with(name);
    };
    if (std::none_of(settings.begin(), settings.end(), is_same)) result.push_back(text);
  }
  return result;
}

pid_t spawn(std::vector<std::string> argv, const std::vector<std::string>& settings, int output) {
  std::vector<std::string> environment = environment_with(settings);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  set_plain_signals(attributes);
  pid_t child = -1;
  const int code = posix_spawnp(&child, argv[0].c_str(), &files, &attributes, pointers(argv).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return code == 0 ? child : -1;
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
  const pid_t child = spawn(argv, settings, pipe_ends[1]);
  close(pipe_ends[1]);
  std::string text;
  const bool complete = child > 0 && read_all(pipe_ends[0], deadline, text);
  close(pipe_ends[0]);
  if (child <= 0) return std::nullopt;
  const bool ended_well = succeeded(child, complete ? deadline : Clock::now());
  return complete && ended_well ? std::optional(text) : std::nullopt;
}

}  // namespace lockstep::base
