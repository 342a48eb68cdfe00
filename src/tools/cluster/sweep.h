#pragma once
// A sweep: the values of some keys, and a task with a run of its own for each of their combinations.

#include <string>
#include <vector>

namespace lockstep::cluster {

struct SweptKey {
  std::string key;
  std::vector<std::string> values;
};

/// "optim.lr=0.1,0.01", "run.seed=0..4" (whole numbers, both ends). A comma inside [], {} or quotes parts
/// nothing. InputError for anything else.
SweptKey parse_swept(const std::string& text);

/// The settings of each task: every combination, the last key fastest, and a run.name of its own made of
/// `name`. InputError for a key that is swept twice, and for more tasks than schedulers take.
std::vector<std::vector<std::string>> tasks_of(const std::vector<SweptKey>& swept, const std::string& name);

}  // namespace lockstep::cluster
