#pragma once
// An adapter for libtorch's own optimizers, for save(), load(), make_schedule() and GradScaler.

#include "lockstep/optim/optimizer.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

/// Wraps SGD, Adam, AdamW, RMSprop or Adagrad of torch::optim, or a class derived from them. Their state has
/// Python's format.
class TorchOptimizer : public Optimizer {
 public:
  /// `optimizer` must outlive it and must already have all its parameter groups.
  explicit TorchOptimizer(torch::optim::Optimizer& optimizer);

  /// Checks for local gradients, like lockstep's own optimizers, and steps.
  void step() override;
  /// The current rate of `optimizer`.
  double lr(size_t group = 0) const override;
  using Optimizer::set_lr;
  /// Sets the rate of `optimizer`.
  void set_lr(double lr, size_t group) override;
  double momentum(size_t group) const override;
  void set_momentum(double momentum, size_t group) override;
  bool has_betas() const override;
  int64_t state_bytes(size_t index) const override;

 protected:
  void update(const std::vector<Slot>& slots, size_t group) override;
  Tree state_of(size_t index) const override;
  void set_state_of(size_t index, const Tree& state) override;
  std::vector<std::pair<Tree, Tree>> options_of(size_t group) const override;
  void set_options_of(size_t group, const Tree& saved) override;

 private:
  torch::optim::Optimizer& optimizer_;
};

}  // namespace lockstep
