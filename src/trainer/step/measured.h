#pragma once
// What an epoch is measured by, besides its loss.

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::train {

struct Measured {
  std::string by = "Evaluation";
  std::string curves = "eval";  // TensorBoard's group
  std::vector<std::pair<std::string, double>> values = {};
  std::set<std::string> counts = {};  // which of them are whole numbers
};

}  // namespace lockstep::train
