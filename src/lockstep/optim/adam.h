#pragma once
// Adam and AdamW, as torch.optim's compute them (libtorch's own differ from Python's in the last bits).

#include "lockstep/optim/optimizer.h"

namespace lockstep {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;  // AdamW
};

class Adam : public Optimizer {
 public:
  Adam(std::vector<at::Tensor> params, const AdamOptions& options);
  double momentum() const override { return options_.beta1; }
  void set_momentum(double momentum) override { options_.beta1 = momentum; }
  bool has_betas() const override { return true; }

 protected:
  void update(const std::vector<Slot>& slots) override;
  Tree state_of(size_t index) const override;
  void set_state_of(size_t index, const Tree& state) override;
  std::vector<std::pair<Tree, Tree>> group() const override;
  void set_group(const Tree& group) override;

 private:
  struct Moments {
    at::Tensor step, exp_avg, exp_avg_sq;  // undefined before the first gradient
  };
  struct Correction {
    double step_size, bias_correction2_sqrt;
  };
  Correction advance(const Slot& slot);
  void update_one(const Slot& slot);
  void update_together(const std::vector<Slot>& slots);

  AdamOptions options_;
  std::vector<Moments> moments_;
};

}  // namespace lockstep
