#pragma once
// Adam and AdamW with torch.optim's results (libtorch's own differ from Python's in the last bits).

#include "lockstep/optim/optimizer.h"

namespace lockstep {

/// Python's parameter names and Adam's defaults; the default weight_decay of Python's AdamW is 0.01.
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;  // AdamW
};

/// torch.optim.Adam, and AdamW with decoupled_weight_decay.
class Adam : public KernelOptimizer {
 public:
  /// The options of a group.
  using Options = AdamOptions;
  /// One group.
  Adam(std::vector<at::Tensor> params, const AdamOptions& options);
  /// {{weights, {.weight_decay = 0.1}}, {biases, {}}}: groups do not share options.
  explicit Adam(const std::vector<ParameterGroup<AdamOptions>>& groups);
  double momentum(size_t group) const override { return options_.at(group).beta1; }
  void set_momentum(double momentum, size_t group) override { options_.at(group).beta1 = momentum; }
  bool has_betas() const override { return true; }
  bool fuse() override;
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
  struct Moments {
    at::Tensor step, exp_avg, exp_avg_sq;  // undefined before the first gradient
  };
  struct Correction {
    double step_size, bias_correction2_sqrt;
  };
  Correction advance(const Slot& slot, size_t group);
  Moments& moments_of(const Slot& slot);
  at::TensorOptions step_options(size_t index) const;

  std::vector<AdamOptions> options_;  // one per group; Optimizer keeps the rate
  std::vector<Moments> moments_;
};

/// Python's parameter names and defaults for AdamW.
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

/// torch.optim.AdamW: Adam with decoupled_weight_decay.
class AdamW : public Adam {
 public:
  /// The options of a group.
  using Options = AdamWOptions;
  /// One group.
  explicit AdamW(std::vector<at::Tensor> params, const AdamWOptions& options = {})
      : Adam(std::move(params), of_adam(options)) {}
  /// Several groups, as for Adam.
  explicit AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups) : Adam(of_adam(groups)) {}

 private:
  static AdamOptions of_adam(const AdamWOptions& o) {
    return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, /*decoupled_weight_decay=*/true};
  }
  static std::vector<ParameterGroup<AdamOptions>> of_adam(
      const std::vector<ParameterGroup<AdamWOptions>>& groups) {
    std::vector<ParameterGroup<AdamOptions>> result;
    for (const auto& group : groups) result.push_back({group.params, of_adam(group.options)});
    return result;
  }
};

}  // namespace lockstep
