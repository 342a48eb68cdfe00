#pragma once
// Optimizers that update like Python's torch.optim, bit for bit on the CPU. torch.optim can load their state.

#include <ATen/core/Tensor.h>
#include <torch/version.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/table.h"
#include "lockstep/checkpoint/tree.h"
#include "lockstep/options/settings.h"

namespace lockstep {

/// Parameters and the options that they share: an entry of torch.optim's param_groups.
template <typename Options>
struct ParameterGroup {
  std::vector<at::Tensor> params;
  Options options;
};

/// The base of all optimizers: groups of parameters, their rates, and a state that torch.optim can load.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(Optimizer&&) = delete;

  /// One update. Parameters without a gradient do not change.
  virtual void step();
  /// Deletes the gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);

  /// The parameters of all groups, group after group.
  const std::vector<at::Tensor>& parameters() const { return params_; }
  /// The number of parameter groups.
  size_t group_count() const { return groups_.size(); }
  /// The current learning rate of a group.
  virtual double lr(size_t group = 0) const { return groups_.at(group).lr; }
  /// Sets the learning rate of a group.
  virtual void set_lr(double lr, size_t group);
  /// Sets the learning rate of every group.
  void set_lr(double lr);
  /// SGD's momentum or Adam's first beta, which OneCycleLR cycles.
  virtual double momentum(size_t group) const = 0;
  /// Sets the value that momentum() returns.
  virtual void set_momentum(double momentum, size_t group) = 0;
  /// Whether momentum() is a beta.
  virtual bool has_betas() const { return false; }

  /// The size of a parameter's state in bytes, also before the first step (for dry runs).
  virtual int64_t state_bytes(size_t index) const = 0;

  /// Whether the update of an element depends only on that element's gradient and state. If so, ranks may
  /// divide a parameter (ShardedOptimizer).
  virtual bool elementwise() const { return false; }

  /// From the next step on, updates all parameters in one kernel, with the rate stored on their device, so
  /// that a captured step follows set_lr(). Like Python's fused=True with the rate as a tensor. Returns false
  /// and changes nothing if the optimizer does not support this.
  virtual bool fuse() { return false; }

  /// Returns {"state": {0: {...}}, "param_groups": [{...}]} as torch.optim does. Does not copy tensors. For a
  /// sharded optimizer: collective, and complete only on rank 0.
  virtual Tree state_dict() const;
  /// Loads a state_dict of this class or its torch.optim class. Throws InputError if it does not match.
  virtual void load_state_dict(const Tree& state);
  /// The states in this process, by parameter index.
  Tree held_state() const;

  /// The values that schedules store in a parameter group, in order: initial_lr, max_lr, ...
  std::vector<std::pair<std::string, double>>& extras(size_t group) { return groups_.at(group).extras; }

 protected:
  /// A parameter that appears twice in a group (tied weights) counts once. As in Python, a parameter must not
  /// be in two groups: throws InputError. Options need a member lr.
  template <typename Options>
  explicit Optimizer(const std::vector<ParameterGroup<Options>>& groups) {
    std::vector<ParameterGroup<double>> rates;
    for (const auto& group : groups) rates.push_back({group.params, group.options.lr});
    set_groups(rates);
  }
  /// One group.
  Optimizer(std::vector<at::Tensor> params, double lr) { set_groups({{std::move(params), lr}}); }

  /// The hint for a state from Python that cannot be loaded.
  static constexpr const char* kFreshOptimizer =
      "in Python, save the checkpoint without \"optimizer\": training then begins with a fresh one";

  /// A parameter that has a gradient.
  struct Slot {
    size_t index;  // index of the parameter over all groups
    at::Tensor param, grad;
  };
  /// Throws Error if a gradient is local to this rank although ddp() averages it; for your own step().
  void refuse_local_gradients() const;
  /// Updates the parameters of one group.
  virtual void update(const std::vector<Slot>& slots, size_t group) = 0;
  virtual Tree state_of(size_t index) const = 0;  // the state of a parameter; None before its first step
  /// Sets a parameter's state; None if it has no state yet.
  virtual void set_state_of(size_t index, const Tree& state) = 0;
  /// The options of a group, without lr, params and extras.
  virtual std::vector<std::pair<Tree, Tree>> options_of(size_t group) const = 0;
  /// Sets options from an entry of param_groups. Throws InputError if it does not match.
  virtual void set_options_of(size_t group, const Tree& options) = 0;
  /// A buffer shaped like `like`, valid until the next call; saves an allocation per parameter and step.
  at::Tensor scratch(const at::Tensor& like);
  /// For fuse(): keeps rates on the parameters' device, too.
  void keep_rates_on_device();
  /// The rate of a group, float [], after keep_rates_on_device().
  const at::Tensor& rate_on_device(size_t group) const { return rates_.at(group); }
  /// The group of a parameter.
  size_t group_of(size_t index) const;
  /// Returns `value` with the parameter's dtype and device. Throws InputError if the shape differs.
  at::Tensor fit(size_t index, const Tree& value, const std::string& name) const;

 private:
  friend class ShardedOptimizer;  // calls protected members of another optimizer
  struct Group {
    size_t begin, end;  // in params_
    double lr;
    std::vector<std::pair<std::string, double>> extras;
  };
  void set_groups(const std::vector<ParameterGroup<double>>& rates);
  void refuse_other_groups(const std::vector<Tree>& groups) const;
  Tree group_dict(size_t group) const;
  Tree group_dicts() const;
  void load_group(size_t group, const Tree& saved);

  std::vector<at::Tensor> params_;
  std::vector<Group> groups_;
  std::vector<at::Tensor> rates_;  // a group each; empty before keep_rates_on_device()
  at::Tensor scratch_;
};

/// Base of the optimizers with Python's results: updates one tensor at a time on the CPU, all of a device and
/// type in a few kernels on a GPU, or in one after fuse().
class KernelOptimizer : public Optimizer {
 public:
  bool elementwise() const override { return true; }
  bool fuse() override;

 protected:
  using Optimizer::Optimizer;
  void update(const std::vector<Slot>& slots, size_t group) override;
  /// Updates one parameter on the CPU.
  virtual void update_one(const Slot& slot, size_t group) = 0;
  /// Updates parameters of one device and type on a GPU.
  virtual void update_together(const std::vector<Slot>& slots, size_t group) = 0;
  /// The same in one kernel, after fuse().
  virtual void update_fused(const std::vector<Slot>& slots, size_t group) = 0;
  /// The gradient with the parameter's strides, which libtorch's fused kernels require: a view if strides
  /// differ only in dimensions of size one, else a copy.
  static at::Tensor laid_out_as(const at::Tensor& param, const at::Tensor& grad);
  /// Whether fuse() was called.
  bool is_fused() const { return fused_; }

 private:
  bool fused_ = false;
};

namespace optim {

// Throws an InputError unless it holds.
void require(bool holds, const std::string& what, const std::string& where, const std::string& hint);
void require_not_negative(double value, const std::string& name, const std::string& where);

}  // namespace optim

/// Groups of parameters, each with its settings.
using OptimGroups = std::vector<ParameterGroup<OptimSettings>>;

/// A row of the table of optimizers: RowOf's fields, and `make_groups` for those that support groups.
struct OptimizerRow {
  std::string help = {};
  std::vector<std::string> reads = {};
  std::vector<RowNeed> needs = {};
  std::map<std::string, std::string> defaults = {};
  std::function<std::unique_ptr<Optimizer>(const OptimSettings&, std::vector<at::Tensor>)> make = {};
  std::function<std::unique_ptr<Optimizer>(const OptimGroups&)> make_groups = {};  ///< used instead of make
};

/// Creates a config's optimizer with one parameter group. Throws InputError for values that Python rejects.
std::unique_ptr<Optimizer> make_optimizer(const OptimSettings& settings, std::vector<at::Tensor> params);
/// The same with one or more groups, all with the same name.
std::unique_ptr<Optimizer> make_optimizer(const OptimGroups& groups);

/// A parameter and its name in the model.
using NamedParameter = std::pair<std::string, at::Tensor>;

/// Divides the parameters by settings.no_decay: first those with weight decay, then, without it, those whose
/// name contains one of its strings. One group if either is empty. Throws InputError for a string in no name.
OptimGroups decay_groups(const OptimSettings& settings, const std::vector<NamedParameter>& parameters);

}  // namespace lockstep

/// Adds an optimizer, in the file that defines it: LOCKSTEP_OPTIMIZER(lion, .help = "...", .reads =
/// {"betas"}, .make = make_lion)
#define LOCKSTEP_OPTIMIZER(NAME, ...)                                                                 \
  LOCKSTEP_ROW(optimizer, "optimizer", NAME, lockstep::OptimizerRow, sizeof(lockstep::OptimSettings), \
               __VA_ARGS__)
