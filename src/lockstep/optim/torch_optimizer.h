#pragma once
// libtorch's own optimisers where lockstep takes one: save() and load(), make_schedule(), a GradScaler.
//
//   torch::optim::Adagrad adagrad(model->parameters(), 0.01);
//   lockstep::TorchOptimizer optimizer(adagrad);
//   lockstep::save("run.pt", session, {.model = model, .optimizer = &optimizer});

#include "lockstep/optim/optimizer.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

/// SGD, Adam, AdamW, RMSprop and Adagrad of torch::optim, and what derives from them. Their state has
/// Python's form.
class TorchOptimizer : public Optimizer {
 public:
  /// It stays the program's and has to live as long. All its parameter groups are there.
  explicit TorchOptimizer(torch::optim::Optimizer& optimizer);

  /// Its own, after the check that every optimiser of lockstep makes.
  void step() override;
  /// As it is in `optimizer` now.
  double lr(size_t group = 0) const override;
  using Optimizer::set_lr;
  /// In `optimizer`, too.
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
