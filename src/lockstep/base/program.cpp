#include "lockstep/base/program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep::base {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// nohup's is for what this process starts, too
bool hangs_up_unheard() {
  struct sigaction now {};
  return ::sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// the child starts with the usual handlers, and with nothing else blocked
void set_plain_signals(posix_spawnattr_t& attributes, const Program& program) {
  sigset_t blocked, all;
  sigemptyset(&blocked);
  for (const int signal : program.blocked) sigaddset(&blocked, signal);
  sigfillset(&all);
  if (hangs_up_unheard()) sigdelset(&all, SIGHUP);
  posix_spawnattr_setsigmask(&attributes, &blocked);
  posix_spawnattr_setsigdefault(&attributes, &all);
  const int group = program.apart ? POSIX_SPAWN_SETPGROUP : 0;
  posix_spawnattr_setflags(&attributes,
                           static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group));
}

// a name that is there twice would mean one thing to C and another to a shell
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
