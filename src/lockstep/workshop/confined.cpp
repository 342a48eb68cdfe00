#include "lockstep/workshop/confined.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <thread>

#include "lockstep/workshop/child.h"
#include "lockstep/workshop/interruption.h"

namespace lockstep::workshop {
namespace {

using Clock = std::chrono::steady_clock;
using Children = std::vector<std::unique_ptr<Child>>;

constexpr std::chrono::milliseconds kGlance{50};
constexpr std::chrono::seconds kSweeping{5};

std::set<pid_t> own_children() {
  std::set<pid_t> found;
  std::error_code none;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", none)) {
    std::ifstream file(thread.path() / "children");
    for (pid_t child = 0; file >> child;) found.insert(child);
  }
  return found;
}

// What programs leave behind becomes ours: daemons too, in sessions of their own. At the end it is ended.
class Reaper {
 public:
  Reaper() : others_(own_children()) { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~Reaper() {
    const auto deadline = Clock::now() + kSweeping;
    while (sweep() && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

 private:
  bool sweep() const {
    bool any = false;
    for (const auto child : own_children()) {
      if (others_.count(child) > 0) continue;
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, WNOHANG);
      any = true;
    }
    return any;
  }

  std::set<pid_t> others_;  // started by who became this process
};

bool any_runs(const Children& children) {
  return std::any_of(children.begin(), children.end(), [](const auto& child) { return child->is_running(); });
}

bool any_failed(const Children& children) {
  return std::any_of(children.begin(), children.end(), [](const auto& child) { return child->has_failed(); });
}

void wait_a_little(const Children& children) {
  std::vector<pollfd> waited;
  for (const auto& child : children) child->add_to(waited);
  ::poll(waited.data(), waited.size(), static_cast<int>(kGlance.count()));
}

}  // namespace

std::vector<Ending> run_confined(const std::vector<Command>& commands, const Limits& limits) {
  const Interruption interruption;
  const Reaper reaper;
  Children children;
  for (const auto& command : commands) children.push_back(std::make_unique<Child>(command, limits));
  auto deadline = Clock::now() + limits.time;
  bool hurried = false;
  while (any_runs(children)) {
    wait_a_little(children);
    Interruption::check();
    for (const auto& child : children) child->look();
    if (!hurried && any_failed(children)) {
      hurried = true;
      deadline = std::min(deadline, Clock::now() + limits.grace);
    }
    if (Clock::now() < deadline) continue;
    for (const auto& child : children) child->stop(Why::too_long);
  }
  std::vector<Ending> endings;
  for (const auto& child : children) endings.push_back(child->take());
  return endings;
}

}  // namespace lockstep::workshop
