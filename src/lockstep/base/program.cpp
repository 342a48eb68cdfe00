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

// the child starts with the usual handlers, and with nothing blocked
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

void redirect(posix_spawn_file_actions_t& files, int output, std::optional<int> errors) {
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  if (errors)
    posix_spawn_file_actions_adddup2(&files, *errors, STDERR_FILENO);
  else
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
}

}  // namespace

int start_program(const Program& program, pid_t& child) {
  auto words = program.argv, environment = environment_with(program.settings);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (program.output) redirect(files, *program.output, program.errors);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  set_plain_signals(attributes);
  const int code = posix_spawnp(&child, words[0].c_str(), &files, &attributes, pointers(words).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return code;
}

}  // namespace lockstep::base
