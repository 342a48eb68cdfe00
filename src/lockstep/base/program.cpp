#include "lockstep/base/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::base {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMostText = 1 << 20;
constexpr auto kLook = 100ms;

struct Pipe {
  Descriptor read, write;
  std::string* text;

  explicit Pipe(std::string& into) : text(&into) {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    read = Descriptor(ends[0]);
    write = Descriptor(ends[1]);
  }
};

// Returns false at the end of the output.
bool take_part(Pipe& pipe) {
  std::array<char, 4096> part;
  const ssize_t n = ::read(pipe.read.number(), part.data(), part.size());
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (pipe.text->size() < kMostText) pipe.text->append(part.data(), static_cast<size_t>(n));
  return n > 0;
}

bool any_open(const std::array<Pipe, 2>& pipes) {
  return pipes[0].read || pipes[1].read;
}

// Returns false if nothing came.
bool read_available(std::array<Pipe, 2>& pipes, std::chrono::milliseconds wait) {
  std::array<pollfd, 2> ready{pollfd{pipes[0].read.number(), POLLIN, 0},
                              pollfd{pipes[1].read.number(), POLLIN, 0}};
  if (::poll(ready.data(), ready.size(), static_cast<int>(wait.count())) <= 0) return false;
  for (size_t i = 0; i < pipes.size(); ++i)
    if (ready[i].revents && !take_part(pipes[i])) pipes[i].read.close();
  return true;
}

// Reads what is left in the pipes when the program has ended. A grandchild may hold them open forever.
void read_rest(std::array<Pipe, 2>& pipes) {
  const Deadline deadline(kLook);
  while (any_open(pipes)) {
    const bool late = deadline.passed();
    if (!read_available(pipes, late ? 0ms : kLook / 10) && late) return;
    for (auto& pipe : pipes)
      if (pipe.text->size() >= kMostText) pipe.read.close();
  }
}

bool has_ended(pid_t child, int& status) {
  const pid_t done = ::waitpid(child, &status, WNOHANG);
  if (done < 0 && errno == EINTR) return false;
  if (done < 0) status = 255 << 8;  // unknown if SIGCHLD is ignored
  return done != 0;
}

// Also ends its children if it has a process group of its own.
void end(pid_t child, const Program& program, int& status) {
  log::debug(format("{} (process {}) did not answer in time: sending SIGKILL", program.argv[0], child));
  ::kill(program.apart ? -child : child, SIGKILL);
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
}

void wait_for(pid_t child, const Program& program, std::array<Pipe, 2>& pipes, const Deadline& deadline,
              Answer& answer) {
  int status = 0;
  bool ended = false;
  while (!(ended = has_ended(child, status)) && !deadline.passed()) {
    if (any_open(pipes))
      read_available(pipes, kLook / 5);
    else
      std::this_thread::sleep_for(2ms);
  }
  if (!ended) end(child, program, status);
  read_rest(pipes);
  answer.end = ended ? Answer::left : Answer::late;
  answer.whole = !pipes[0].read && answer.output.size() < kMostText;
  answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Answer ask(const std::vector<std::string>& argv, std::chrono::milliseconds timeout) {
  return ask(Program{.argv = argv}, timeout);
}

Answer ask(Program program, std::chrono::milliseconds timeout) {
  Answer answer;
  std::array<Pipe, 2> pipes{Pipe(answer.output), Pipe(answer.errors)};
  if (program.argv.empty() || !pipes[0].read || !pipes[1].read) return answer;
  const Deadline deadline(timeout);
  pid_t child = -1;
  program.output = pipes[0].write.number();
  program.errors = pipes[1].write.number();
  const bool started = start_program(program, child) == 0;
  for (auto& pipe : pipes) pipe.write.close();
  if (started) wait_for(child, program, pipes, deadline, answer);
  return answer;
}

std::optional<std::string> capture(const std::vector<std::string>& argv, std::chrono::milliseconds timeout,
                                   const std::vector<std::string>& settings) {
  auto answer = ask({.argv = argv, .settings = settings}, timeout);
  return answer.good() && answer.whole ? std::optional(std::move(answer.output)) : std::nullopt;
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::vector<std::string> split(const std::string& text, char sign) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, sign);) parts.push_back(part);
  return parts;
}

namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Whether nohup applies, also to children.
bool ignores_hangup() {
  struct sigaction now {};
  return ::sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// The child starts with default handlers and blocks only `program.blocked`.
void set_plain_signals(posix_spawnattr_t& attributes, const Program& program) {
  sigset_t blocked, all;
  sigemptyset(&blocked);
  for (const int signal : program.blocked) sigaddset(&blocked, signal);
  sigfillset(&all);
  if (ignores_hangup()) sigdelset(&all, SIGHUP);
  posix_spawnattr_setsigmask(&attributes, &blocked);
  posix_spawnattr_setsigdefault(&attributes, &all);
  const int group = program.apart ? POSIX_SPAWN_SETPGROUP : 0;
  posix_spawnattr_setflags(&attributes,
                           static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group));
}

// No name appears twice: C and a shell would read different values.
std::vector<std::string> environment_of(const Program& program) {
  auto result = program.settings;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry, name = text.substr(0, text.find('=') + 1);
    const auto is_same = [&](const std::string& setting) {
      return !name.empty() && setting.starts_with(name);
    };
    if (is_among(text.substr(0, text.find('=')), program.without)) continue;
    if (std::none_of(program.settings.begin(), program.settings.end(), is_same)) result.push_back(text);
  }
  return result;
}

void redirect(posix_spawn_file_actions_t& files, int output, std::optional<int> errors) {
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  if (errors)
    posix_spawn_file_actions_adddup2(&files, *errors, STDERR_FILENO);
  else
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
}

}  // namespace

bool is_among(std::string_view name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
    return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
  });
}

int start_program(const Program& program, pid_t& child) {
  auto words = program.argv, environment = environment_of(program);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (program.output) redirect(files, *program.output, program.errors);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  set_plain_signals(attributes, program);
  const int code = posix_spawnp(&child, words[0].c_str(), &files, &attributes, pointers(words).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return code;
}

}  // namespace lockstep::base
