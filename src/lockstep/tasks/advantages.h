#pragma once
// What an action was worth beyond what was expected: generalised advantages (Schulman et al.,
// arXiv:1506.02438).

#include <cstdint>
#include <vector>

namespace lockstep::tasks {

/// A round's steps, one time after another, and in each all environments.
struct Trail {
  int64_t environments = 1;
  std::vector<double> rewards;
  std::vector<double> values;       // that the model gave what was seen
  std::vector<double> next_values;  // and what came of it: 0 after a fall, though not when the time was up
  std::vector<bool> ended;          // the episode, either way
};

std::vector<double> advantages_of(const Trail& trail, double gamma, double lambda);

}  // namespace lockstep::tasks
