#pragma once
// How a model is cut into the stages of a pipeline: which parts and which tensors each stage holds.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/models/chain.h"
#include "lockstep/models/net.h"
#include "lockstep/parallel/stages/stage_line.h"

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

// One stage of a model as a Net: it holds this stage's parameters under the whole model's names, and its
// forward is the whole pipeline's.

class StageNet : public Net {
 public:
  /// Takes the model over: the other stages' tensors are let go.
  StageNet(std::shared_ptr<Net> whole, const Stages& stages, parallel::StageLine& line);

  /// Through all stages, the same output on each. Collective along the line; without gradients.
  torch::Tensor forward(const torch::Tensor& input) override;
  /// This stage's parts alone.
  torch::Tensor own_forward(torch::Tensor x) const;
  void train(bool on = true) override;

 private:
  torch::Tensor received(const std::vector<int64_t>& batch);
  void adopt(const std::string& name, const at::Tensor& tensor, bool is_parameter);

  std::shared_ptr<Net> whole_;
  std::vector<Part> parts_;
  parallel::StageLine& line_;
};

}  // namespace lockstep::train
