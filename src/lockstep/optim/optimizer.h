#pragma once
// SGD, Adam and AdamW whose parameters equal those of Python's torch.optim bit for bit on the CPU, and whose
// state torch.optim's classes load.

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/config/settings.h"

namespace lockstep {

class Optimizer {
 public:
  /// A parameter that appears twice (tied weights) is taken once, as Python does.
  Optimizer(std::vector<at::Tensor> params, double lr);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update from the gradients that are there. Parameters without a gradient are left alone.
  void step();
  void zero_grad(bool set_to_none = true);

  const std::vector<at::Tensor>& parameters() const { return params_; }
  double lr() const { return lr_; }
  void set_lr(double lr) { lr_ = lr; }
  /// SGD's momentum, Adam's first beta: what OneCycleLR cycles.
  virtual double momentum() const = 0;
  virtual void set_momentum(double momentum) = 0;
  /// Is momentum() a beta?
  virtual bool has_betas() const { return false; }

  /// {"state": {0: {...}}, "param_groups": [{...}]}, as torch.optim writes it. Tensors are not copied.
  Tree state_dict() const;
  /// Takes a state_dict of this class or of the same torch.optim class. InputError where it doesn't fit.
  void load_state_dict(const Tree& state);

  /// What schedules leave in the parameter group, in order: initial_lr, max_lr, ...
  std::vector<std::pair<std::string, double>>& extras() { return extras_; }

 protected:
  /// What to do about a state of Python's that cannot be taken over.
  static constexpr const char* kFreshOptimizer =
      "in Python, save the checkpoint without \"optimizer\": training then begins with a fresh one";

  struct Slot {
    size_t index;  // of the parameter
    at::Tensor param, grad;
  };
  virtual void update(const std::vector<Slot>& slots) = 0;
  virtual Tree state_of(size_t index) const = 0;  // None where there is none yet
  virtual void set_state_of(size_t index, const Tree& state) = 0;
  virtual std::vector<std::pair<Tree, Tree>> group() const = 0;  // without lr, params and extras
  virtual void set_group(const Tree& group) = 0;
  /// Memory shaped like `like`, good until the next call: spares an allocation a parameter and step.
  at::Tensor scratch(const at::Tensor& like);
  /// A state tensor with the parameter's dtype, device and shape, or InputError.
  at::Tensor fit(size_t index, const Tree& value, const std::string& name) const;

  std::vector<at::Tensor> params_;
  double lr_;

 private:
  std::vector<std::pair<std::string, double>> extras_;
  at::Tensor scratch_;
};

/// The optimiser a config names. InputError for an impossible value, with Python's rules.
std::unique_ptr<Optimizer> make_optimizer(const OptimSettings& settings, std::vector<at::Tensor> params);

}  // namespace lockstep
