#include "course/workshop/process/processes.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace lockstep::workshop {
namespace {

constexpr std::chrono::seconds kSweeping{5};

}  // namespace

std::set<pid_t> children_of(pid_t pid) {
  namespace fs = std::filesystem;
  std::set<pid_t> found;
  std::error_code gone;
  for (fs::directory_iterator thread("/proc/" + std::to_string(pid) + "/task", gone), end;
       !gone && thread != end; thread.increment(gone)) {
    std::ifstream file(thread->path() / "children");
    for (pid_t child = 0; file >> child;) found.insert(child);
  }
  return found;
}

std::set<pid_t> descendants_of(pid_t pid, const std::set<pid_t>& but) {
  std::set<pid_t> found;
  for (const auto child : children_of(pid)) {
    if (but.count(child) > 0 || !found.insert(child).second) continue;
    found.merge(descendants_of(child, {}));
  }
  return found;
}

bool is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto behind_name = line.rfind(')');
  return behind_name != std::string::npos && line.compare(behind_name, 3, ") T") == 0;
}

Reaper::Reaper() : others_(children_of(::getpid())) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Reaper::~Reaper() {
  sweep();
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

void Reaper::sweep() const {
  const auto deadline = std::chrono::steady_clock::now() + kSweeping;
  while (end_some() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool Reaper::end_some() const {
  bool any = false;
  for (const auto child : children_of(::getpid())) {
    if (others_.count(child) > 0) continue;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, WNOHANG);
    any = true;
  }
  return any;
}

}  // namespace lockstep::workshop
