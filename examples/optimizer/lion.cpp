// An optimizer of one's own, and a schedule beside it: Lion (Chen et al. 2023), whose step is the sign of a
// momentum.
#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/schedule.h>

#include <cmath>

namespace {

using lockstep::Tree;

// A factor as Python passes it: mul_(double) would first round it to the tensor's type, such as bf16.
at::Tensor factor(double value) {
  return at::native::wrapped_scalar_tensor(value);
}

class Lion : public lockstep::Optimizer {
 public:
  Lion(std::vector<at::Tensor> params, const lockstep::OptimSettings& settings)
      : Optimizer(std::move(params), settings.lr),
        betas_(settings.betas),
        weight_decay_(settings.weight_decay),
        averages_(parameters().size()) {}

  double momentum(size_t) const override { return betas_[0]; }
  void set_momentum(double momentum, size_t) override { betas_[0] = momentum; }
  // each element for itself: with optim.sharded ranks may cut a parameter
  bool elementwise() const override { return true; }
  int64_t state_bytes(size_t index) const override {
    return static_cast<int64_t>(parameters()[index].nbytes());
  }

 protected:
  void update(const std::vector<Slot>& slots, size_t group) override {
    for (const auto& [index, param, grad] : slots) {
      auto& average = averages_[index];
      if (!average.defined()) average = at::zeros_like(param);
      param.mul_(factor(1 - lr(group) * weight_decay_));
      param.add_(average.mul(factor(betas_[0])).add_(grad, 1 - betas_[0]).sign_(), -lr(group));
      average.mul_(factor(betas_[1])).add_(grad, 1 - betas_[1]);
    }
  }

  // A config makes one group of parameters, so one set of options is enough. What goes into a checkpoint: a
  // parameter's state, and the hyper-parameters.
  Tree state_of(size_t index) const override {
    if (!averages_[index].defined()) return {};
    return lockstep::make_dict({{"exp_avg", averages_[index]}});
  }
  void set_state_of(size_t index, const Tree& state) override {
    averages_[index] = state.isNone() ? at::Tensor() : fit(index, lockstep::get(state, "exp_avg"), "exp_avg");
  }
  std::vector<std::pair<Tree, Tree>> options_of(size_t) const override {
    return {{"betas", c10::ivalue::Tuple::create({betas_[0], betas_[1]})}, {"weight_decay", weight_decay_}};
  }
  void set_options_of(size_t, const Tree& saved) override {
    const auto betas = lockstep::elements(lockstep::get(saved, "betas"));
    betas_ = {lockstep::as_double(betas.at(0), "betas"), lockstep::as_double(betas.at(1), "betas")};
    weight_decay_ = lockstep::as_double(lockstep::get(saved, "weight_decay"), "weight_decay");
  }

 private:
  std::array<double, 2> betas_;
  double weight_decay_;
  std::vector<at::Tensor> averages_;
};

std::unique_ptr<lockstep::Optimizer> make_lion(const lockstep::OptimSettings& settings,
                                               std::vector<at::Tensor> params) {
  return std::make_unique<Lion>(std::move(params), settings);
}

// Once an epoch: the rate divided by the root of what `epochs` says is one unit.
class InverseRoot : public lockstep::Schedule {
 public:
  InverseRoot(lockstep::Optimizer& optimizer, double unit)
      : optimizer_(optimizer), first_(optimizer.lr()), unit_(unit) {}
  void step(std::optional<double>) override {
    ++epoch_;
    optimizer_.set_lr(first_ / std::sqrt(1 + static_cast<double>(epoch_) / unit_));
  }
  Tree state_dict() const override { return lockstep::make_dict({{"epoch", epoch_}, {"first", first_}}); }
  void load_state_dict(const Tree& state) override {
    epoch_ = lockstep::as_int(lockstep::get(state, "epoch"), "epoch");
    first_ = lockstep::as_double(lockstep::get(state, "first"), "first");
  }

 private:
  lockstep::Optimizer& optimizer_;
  double first_, unit_;
  int64_t epoch_ = 0;
};

}  // namespace

LOCKSTEP_OPTIMIZER(lion, .help = "Lion: the sign of a momentum", .reads = {"betas", "weight_decay"},
                   .defaults = {{"optim.weight_decay", "0.01"}}, .make = make_lion)

LOCKSTEP_SCHEDULE(
    inverse_root, .help = "over the root of the epochs", .reads = {"options.unit"},
    .make = [](const auto& settings, auto& optimizer, const auto&) {
      const auto unit = lockstep::option(settings.options, "unit", 1.0);
      return std::make_unique<InverseRoot>(optimizer, unit);
    })
