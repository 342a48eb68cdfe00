#pragma once
// SGD with momentum, Nesterov and weight decay, as torch.optim.SGD computes it.

#include "lockstep/optim/optimizer.h"

namespace lockstep {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

class Sgd : public Optimizer {
 public:
  Sgd(std::vector<at::Tensor> params, const SgdOptions& options);
  double momentum() const override { return options_.momentum; }
  void set_momentum(double momentum) override { options_.momentum = momentum; }

 protected:
  void update(const std::vector<Slot>& slots) override;
  Tree state_of(size_t index) const override;
  void set_state_of(size_t index, const Tree& state) override;
  std::vector<std::pair<Tree, Tree>> group() const override;
  void set_group(const Tree& group) override;

 private:
  void update_one(const Slot& slot);
  void update_together(const std::vector<Slot>& slots);

  SgdOptions options_;
  std::vector<at::Tensor> buffers_;  // undefined before the first gradient
};

}  // namespace lockstep
