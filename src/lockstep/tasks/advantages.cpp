#include "lockstep/tasks/advantages.h"

namespace lockstep::tasks {

std::vector<double> advantages_of(const Trail& trail, double gamma, double lambda) {
  const auto environments = static_cast<size_t>(trail.environments);
  std::vector<double> advantages(trail.rewards.size());
  for (size_t i = advantages.size(); i-- > 0;) {
    const size_t later = i + environments;
    const bool goes_on = later < advantages.size() && !trail.ended[i];
    advantages[i] = trail.rewards[i] + gamma * trail.next_values[i] - trail.values[i] +
                    (goes_on ? gamma * lambda * advantages[later] : 0);
  }
  return advantages;
}

}  // namespace lockstep::tasks
