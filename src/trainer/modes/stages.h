#pragma once
// How a model is cut into the stages of a pipeline: which parts and which tensors each stage holds.

#include <string>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/models/chain.h"
#include "lockstep/models/net.h"

namespace lockstep::train {

/// The whole model, as every stage knows it.
struct Stages {
  std::vector<std::vector<Part>> parts;  // of each stage
  std::vector<std::string> parameters;   // of the whole model, each once, in Python's order
  std::vector<int> owner_of_parameter;   // the stage that holds it
  Tree shapes;                           // its state dict, on the meta device
  std::vector<int> owner_of_entry;       // of that dict's entries, in their order

  /// "fc1, fc2 (401,536 parameters)", of each stage.
  std::vector<std::string> words(const Net& net) const;
};

/// Cuts where the largest stage has the fewest parameters. InputError where the model is no chain, has too
/// few parts, or shares a parameter between two stages.
Stages cut_into_stages(Net& net, int stages);

}  // namespace lockstep::train
