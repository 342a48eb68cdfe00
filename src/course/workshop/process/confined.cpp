#include "course/workshop/process/confined.h"

#include <algorithm>
#include <memory>

#include "course/workshop/process/child.h"
#include "course/workshop/process/footprint.h"
#include "course/workshop/process/interruption.h"
#include "course/workshop/process/processes.h"

namespace lockstep::workshop {
namespace {

using Clock = std::chrono::steady_clock;
using Children = std::vector<std::unique_ptr<Child>>;

constexpr std::chrono::milliseconds kGlance{50};

bool any_runs(const Children& children) {
  return std::any_of(children.begin(), children.end(), [](const auto& child) { return child->is_running(); });
}

bool any_failed(const Children& children) {
  return std::any_of(children.begin(), children.end(), [](const auto& child) { return child->has_failed(); });
}

void wait_a_little(const Children& children, const Footprint& footprint) {
  std::vector<pollfd> waited;
  footprint.add_to(waited);
  for (const auto& child : children) child->add_to(waited);
  ::poll(waited.data(), waited.size(), static_cast<int>(kGlance.count()));
}

}  // namespace

std::vector<Ending> run_confined(const std::vector<ConfinedCommand>& commands, const ProgramLimits& limits) {
  const Interruption interruption;
  const Reaper reaper;
  Footprint footprint(reaper.others());
  Children children;
  for (const auto& command : commands) children.push_back(std::make_unique<Child>(command, limits));
  auto deadline = Clock::now() + limits.time;
  bool hurried = false;
  while (any_runs(children)) {
    wait_a_little(children, footprint);
    Interruption::check();
    for (const auto& child : children) child->look();
    if (footprint.look() > limits.together) {
      for (const auto& child : children) child->stop(Why::too_much_memory);
    }
    if (!hurried && any_failed(children)) {
      hurried = true;
      deadline = std::min(deadline, Clock::now() + limits.grace);
    }
    if (Clock::now() < deadline) continue;
    for (const auto& child : children) child->stop(Why::too_long);
  }
  reaper.sweep();
  std::vector<Ending> endings;
  for (const auto& child : children) endings.push_back(child->take());
  return endings;
}

}  // namespace lockstep::workshop
