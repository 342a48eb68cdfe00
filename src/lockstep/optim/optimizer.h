#pragma once
// Optimisers that update as Python's torch.optim does, bit for bit on the CPU, and whose state torch.optim
// loads.

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

/// The base of all optimisers: groups of parameters, their rates, and a state that torch.optim reads.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update. Parameters without a gradient do not change.
  virtual void step();
  /// Drops the gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);

  /// Those of all groups, group after group.
  const std::vector<at::Tensor>& parameters() const { return params_; }
  /// The number of parameter groups.
  size_t group_count() const { return groups_.size(); }
  /// A group's current rate.
  virtual double lr(size_t group = 0) const { return groups_.at(group).lr; }
  /// Sets a group's rate.
  virtual void set_lr(double lr, size_t group);
  /// Of every group.
  void set_lr(double lr);
  /// SGD's momentum or Adam's first beta, which OneCycleLR cycles.
  virtual double momentum(size_t group) const = 0;
  /// Sets what momentum() gives.
  virtual void set_momentum(double momentum, size_t group) = 0;
  /// Is momentum() a beta?
  virtual bool has_betas() const { return false; }

  /// The bytes of a parameter's state after its first gradient; a dry run calls it before there is one.
  virtual int64_t state_bytes(size_t index) const = 0;

  /// True if the update of an element depends only on that element's gradient and state: then ranks may
  /// divide a parameter (ShardedOptimizer).
  virtual bool elementwise() const { return false; }

  /// From the next step on, updates all parameters in one kernel, with a rate on their device, so that a
  /// captured step follows set_lr(). As Python's fused=True with the rate as a tensor. Returns false, and
  /// changes nothing, if the optimiser cannot.
  virtual bool fuse() { return false; }

  /// {"state": {0: {...}}, "param_groups": [{...}]}, as torch.optim writes it. Tensors are not copied. For a
  /// sharded optimiser: collective, and complete on rank 0.
  virtual Tree state_dict() const;
  /// Takes a state_dict of this class or of the same torch.optim class. InputError where it doesn't fit.
  virtual void load_state_dict(const Tree& state);
  /// The states that this process holds, by the parameter's number.
  Tree held_state() const;

  /// What schedules store in a parameter group, in order: initial_lr, max_lr, ...
  std::vector<std::pair<std::string, double>>& extras(size_t group) { return groups_.at(group).extras; }

 protected:
  /// A parameter that appears twice in a group (tied weights) counts once; one in two groups is an
  /// InputError, as in Python. Options need a member lr.
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
    size_t index;  // of the parameter, over all groups
    at::Tensor param, grad;
  };
  /// Error if a gradient is local to this rank although ddp() averages it; for your own step().
  void refuse_local_gradients() const;
  /// Slots of one group.
  virtual void update(const std::vector<Slot>& slots, size_t group) = 0;
  virtual Tree state_of(size_t index) const = 0;  // None where there is none yet
  /// None: there is none yet.
  virtual void set_state_of(size_t index, const Tree& state) = 0;
  virtual std::vector<std::pair<Tree, Tree>> options_of(size_t group) const = 0;  // not lr, params and extras
  /// Takes an entry of param_groups, or throws an InputError.
  virtual void set_options_of(size_t group, const Tree& options) = 0;
  /// Memory shaped like `like`, valid until the next call: saves an allocation per parameter and step.
  at::Tensor scratch(const at::Tensor& like);
  /// For fuse(): keeps rates on the parameters' device, too.
  void keep_rates_on_device();
  /// A group's, float [], after keep_rates_on_device().
  const at::Tensor& rate_on_device(size_t group) const { return rates_.at(group); }
  /// The group that a parameter is in.
  size_t group_of(size_t index) const;
  /// A state tensor with the parameter's dtype, device and shape, or InputError.
  at::Tensor fit(size_t index, const Tree& value, const std::string& name) const;

 private:
  friend class ShardedOptimizer;  // calls protected members of another optimiser
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

/// What updates as Python's optimisers do: one tensor at a time on the CPU, all of a device and type in a few
/// kernels on a GPU, and after fuse() in one.
class KernelOptimizer : public Optimizer {
 public:
  bool elementwise() const override { return true; }
  bool fuse() override;

 protected:
  using Optimizer::Optimizer;
  void update(const std::vector<Slot>& slots, size_t group) override;
  /// On the CPU.
  virtual void update_one(const Slot& slot, size_t group) = 0;
  /// On a GPU; slots of one device and type.
  virtual void update_together(const std::vector<Slot>& slots, size_t group) = 0;
  /// After fuse(); slots of one device and type.
  virtual void update_fused(const std::vector<Slot>& slots, size_t group) = 0;
  /// The gradient with the parameter's strides, on which libtorch's fused kernels insist: itself where only
  /// dimensions of one element differ, else a copy.
  static at::Tensor laid_out_as(const at::Tensor& param, const at::Tensor& grad);
  /// Was fuse() called?
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

/// A row of the table of optimisers: RowOf's fields, and `make_groups` for those that support groups.
struct OptimizerRow {
  std::string help = {};
  std::vector<std::string> reads = {};
  std::vector<RowNeed> needs = {};
  std::map<std::string, std::string> defaults = {};
  std::function<std::unique_ptr<Optimizer>(const OptimSettings&, std::vector<at::Tensor>)> make = {};
  std::function<std::unique_ptr<Optimizer>(const OptimGroups&)> make_groups = {};  ///< in place of make
};

/// The optimiser that a config names, with one parameter group. InputError for values that Python refuses.
std::unique_ptr<Optimizer> make_optimizer(const OptimSettings& settings, std::vector<at::Tensor> params);
/// The same with one or more groups, all with the same name.
std::unique_ptr<Optimizer> make_optimizer(const OptimGroups& groups);

/// A parameter and its name in the model.
using NamedParameter = std::pair<std::string, at::Tensor>;

/// Divides the parameters by settings.no_decay: first those that decay, then, without weight decay, those
/// whose name contains one of its texts. One group if either is empty. InputError if no name contains a text.
OptimGroups decay_groups(const OptimSettings& settings, const std::vector<NamedParameter>& parameters);

}  // namespace lockstep

/// Adds an optimiser, in the file that defines it: LOCKSTEP_OPTIMIZER(lion, .help = "...", .reads =
/// {"betas"}, .make = make_lion)
#define LOCKSTEP_OPTIMIZER(NAME, ...)                                                                 \
  LOCKSTEP_ROW(optimizer, "optimiser", NAME, lockstep::OptimizerRow, sizeof(lockstep::OptimSettings), \
               __VA_ARGS__)
