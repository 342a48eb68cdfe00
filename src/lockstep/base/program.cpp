#include "lockstep/base/program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::base {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr size_t kMostText = 1 << 20;
constexpr off_t kTooMuch = 64 << 20;  // on the way to filling the memory

// A file in memory for a program's output. Unlike a pipe it never blocks the program, and a grandchild that
// holds it open does not matter.
Descriptor output_file() {
  return Descriptor(::memfd_create("lockstep-output", MFD_CLOEXEC));
}

off_t size_of(const Descriptor& file) {
  struct stat facts {};
  return ::fstat(file.number(), &facts) == 0 ? facts.st_size : 0;
}

std::string text_in(const Descriptor& file) {
  std::string text(std::min(static_cast<size_t>(size_of(file)), kMostText), '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(::pread(file.number(), text.data(), text.size(), 0), 0)));
  return text;
}

// Whether it has exited; fills its status.
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

}  // namespace

Answer ask(const std::vector<std::string>& argv, std::chrono::milliseconds timeout) {
  return ask(Program{.argv = argv}, timeout);
}

Answer ask(Program program, std::chrono::milliseconds timeout) {
  Answer answer;
  const auto output = output_file(), errors = output_file();
  if (program.argv.empty() || !output || !errors) return answer;
  const auto until = Clock::now() + timeout;
  program.output = output.number();
  program.errors = errors.number();
  pid_t child = -1;
  if (start_program(program, child) != 0) return answer;
  int status = 0;
  bool ended = false;
  auto pause = 1ms;
  while (!(ended = has_ended(child, status)) && Clock::now() < until &&
         size_of(output) + size_of(errors) < kTooMuch) {
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, 20ms);
  }
  if (!ended) end(child, program, status);
  answer.output = text_in(output);
  answer.errors = text_in(errors);
  answer.end = ended ? Answer::left : Answer::late;
  answer.whole = answer.output.size() < kMostText;
  answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
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
