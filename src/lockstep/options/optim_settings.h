#pragma once
// What an optimiser is made from.

#include <array>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// The section `optim` of a config.
struct OptimSettings {
  std::string name = "sgd";  // a row of the table of optimisers
  double lr = 0.01;
  double momentum = 0.9;
  double weight_decay = 0;  // resolved from `default`: the optimiser's row says what it is
  bool nesterov = false;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  bool sharded = false;                             // each rank keeps its share of the state
  std::vector<std::string> no_decay = {};           // parts of names: no weight decay for these parameters
  std::map<std::string, std::string> options = {};  // for an optimiser of the user's own

  bool operator==(const OptimSettings&) const = default;
};

}  // namespace lockstep
