#pragma once
// SGD with momentum, Nesterov and weight decay, with the results of torch.optim.SGD.

#include "lockstep/optim/optimizer.h"

namespace lockstep {

/// Python's parameter names and defaults.
struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

/// torch.optim.SGD.
class Sgd : public KernelOptimizer {
 public:
  /// The options of a group.
  using Options = SgdOptions;
  /// One group.
  Sgd(std::vector<at::Tensor> params, const SgdOptions& options);
  /// {{weights, {.weight_decay = 0.1}}, {biases, {}}}: groups do not share options.
  explicit Sgd(const std::vector<ParameterGroup<SgdOptions>>& groups);
  double momentum(size_t group) const override { return options_.at(group).momentum; }
  void set_momentum(double momentum, size_t group) override { options_.at(group).momentum = momentum; }
  int64_t state_bytes(size_t index) const override;

 protected:
  void update_one(const Slot& slot, size_t group) override;
  void update_together(const std::vector<Slot>& slots, size_t group) override;
  void update_fused(const std::vector<Slot>& slots, size_t group) override;
  Tree state_of(size_t index) const override;
  void set_state_of(size_t index, const Tree& state) override;
  std::vector<std::pair<Tree, Tree>> options_of(size_t group) const override;
  void set_options_of(size_t group, const Tree& saved) override;

 private:
  bool update_in_one_pass(const Slot& slot, size_t group);

  std::vector<SgdOptions> options_;  // one per group; Optimizer keeps the rate
  std::vector<at::Tensor> buffers_;  // undefined before the first gradient
};

}  // namespace lockstep
