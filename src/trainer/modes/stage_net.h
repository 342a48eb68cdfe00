#pragma once
// One stage of a model as a Net: it holds this stage's parameters under the whole model's names, and its
// forward is the whole pipeline's.

#include <memory>
#include <vector>

#include "lockstep/models/net.h"
#include "lockstep/parallel/stages/stage_line.h"
#include "trainer/modes/stages.h"

namespace lockstep::train {

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
