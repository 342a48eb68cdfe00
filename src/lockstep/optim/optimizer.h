#pragma once
// SGD, Adam and AdamW whose parameters equal those of Python's torch.optim bit for bit on the CPU, and whose
// state torch.optim's classes load.

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

/// What all optimisers share: groups of parameters, their rates, and a state that torch.optim reads.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update from the gradients that are there. Parameters without a gradient are left alone.
  virtual void step();
  /// Forgets the gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);

  /// Of all groups, one group after the other.
  const std::vector<at::Tensor>& parameters() const { return params_; }
  /// How many parameter groups there are; they are counted from 0.
  size_t group_count() const { return groups_.size(); }
  /// A group's present rate.
  virtual double lr(size_t group = 0) const { return groups_.at(group).lr; }
  /// Sets a group's rate.
  virtual void set_lr(double lr, size_t group);
  /// Of every group.
  void set_lr(double lr);
  /// SGD's momentum, Adam's first beta: what OneCycleLR cycles.
  virtual double momentum(size_t group) const = 0;
  /// Sets what momentum() gives.
  virtual void set_momentum(double momentum, size_t group) = 0;
  /// Is momentum() a beta?
  virtual bool has_betas() const { return false; }

  /// What the state of a parameter takes once it has had a gradient, in bytes: a dry run asks before there is
  /// one.
  virtual int64_t state_bytes(size_t index) const = 0;

  /// Is each element of a parameter updated from that element's gradient and state alone, so that a part of
  /// it may be updated without the rest? Then ranks may share a parameter (ShardedOptimizer).
  virtual bool elementwise() const { return false; }

  /// From the next step on: all parameters in one kernel, at a rate that lies on their device, so that a step
  /// which was captured follows set_lr(). Python's fused=True with the rate as a tensor. False, and nothing
  /// changes, where an optimiser has no such way.
  virtual bool fuse() { return false; }

  /// {"state": {0: {...}}, "param_groups": [{...}]}, as torch.optim writes it. Tensors are not copied. Of an
  /// optimiser that ranks share: collective, and whole on rank 0.
  virtual Tree state_dict() const;
  /// Takes a state_dict of this class or of the same torch.optim class. InputError where it doesn't fit.
  virtual void load_state_dict(const Tree& state);
  /// The states that this process holds, by the parameter's number.
  Tree held_state() const;

  /// What schedules leave in a parameter group, in order: initial_lr, max_lr, ...
  std::vector<std::pair<std::string, double>>& extras(size_t group) { return groups_.at(group).extras; }

 protected:
  /// A parameter that appears twice in a group (tied weights) is taken once; one that is in two groups is an
  /// InputError, as in Python. Options need a member lr.
  template <typename Options>
  explicit Optimizer(const std::vector<ParameterGroup<Options>>& groups) {
    std::vector<ParameterGroup<double>> rates;
    for (const auto& group : groups) rates.push_back({group.params, group.options.lr});
    set_groups(rates);
  }
  /// One group.
  Optimizer(std::vector<at::Tensor> params, double lr) { set_groups({{std::move(params), lr}}); }

  /// What to do about a state of Python's that cannot be taken over.
  static constexpr const char* kFreshOptimizer =
      "in Python, save the checkpoint without \"optimizer\": training then begins with a fresh one";

  /// A parameter that has a gradient.
  struct Slot {
    size_t index;  // of the parameter, over all groups
    at::Tensor param, grad;
  };
  /// Error where a gradient is this rank's alone though ddp() averages it: for a step() of one's own.
  void refuse_local_gradients() const;
  /// Slots of one group.
  virtual void update(const std::vector<Slot>& slots, size_t group) = 0;
  virtual Tree state_of(size_t index) const = 0;  // None where there is none yet
  /// None: there is none yet.
  virtual void set_state_of(size_t index, const Tree& state) = 0;
  virtual std::vector<std::pair<Tree, Tree>> options_of(size_t group) const = 0;  // not lr, params and extras
  /// Takes an entry of param_groups, or throws an InputError.
  virtual void set_options_of(size_t group, const Tree& options) = 0;
  /// Memory shaped like `like`, good until the next call: spares an allocation a parameter and step.
  at::Tensor scratch(const at::Tensor& like);
  /// For fuse(): rates lie on the parameters' device as well.
  void keep_rates_on_device();
  /// A group's, float [], after keep_rates_on_device().
  const at::Tensor& rate_on_device(size_t group) const { return rates_.at(group); }
  /// The group that a parameter is in.
  size_t group_of(size_t index) const;
  /// A state tensor with the parameter's dtype, device and shape, or InputError.
  at::Tensor fit(size_t index, const Tree& value, const std::string& name) const;

 private:
  friend class ShardedOptimizer;  // asks another optimiser for what is protected here
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

/// Groups of parameters, each with the settings that it is to have.
using OptimGroups = std::vector<ParameterGroup<OptimSettings>>;

/// A row of the table of optimisers: RowOf's fields, and for those that know groups how several are made.
struct OptimizerRow {
  std::string help = {};
  std::vector<std::string> reads = {};
  std::vector<RowNeed> needs = {};
  std::map<std::string, std::string> defaults = {};
  std::function<std::unique_ptr<Optimizer>(const OptimSettings&, std::vector<at::Tensor>)> make = {};
  std::function<std::unique_ptr<Optimizer>(const OptimGroups&)> make_groups = {};  ///< in place of make
};

/// The optimiser a config names, with one parameter group. InputError for an impossible value, with Python's
/// rules.
std::unique_ptr<Optimizer> make_optimizer(const OptimSettings& settings, std::vector<at::Tensor> params);
/// The same with a group or several, all of one name.
std::unique_ptr<Optimizer> make_optimizer(const OptimGroups& groups);

/// A parameter, and its name in the model.
using NamedParameter = std::pair<std::string, at::Tensor>;

/// The parameters as settings.no_decay divides them: first those that decay, then those whose name has one of
/// its parts, without weight decay; one group where nothing is divided. InputError where a part is in no
/// name.
OptimGroups decay_groups(const OptimSettings& settings, const std::vector<NamedParameter>& parameters);

}  // namespace lockstep

/// Adds an optimiser, in the file that defines it: LOCKSTEP_OPTIMIZER(lion, .help = "...", .reads =
/// {"betas"}, .make = make_lion)
#define LOCKSTEP_OPTIMIZER(NAME, ...)                                                                 \
  LOCKSTEP_ROW(optimizer, "optimiser", NAME, lockstep::OptimizerRow, sizeof(lockstep::OptimSettings), \
               __VA_ARGS__)
