#include "lockstep/optim/adam.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/python_scalar.h"

namespace lockstep {

namespace {

// A complex number is two real ones, as in Python.
at::Tensor as_real(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

void check_adam(const AdamOptions& options) {
  optim::require_not_negative(options.lr, "learning rate", "optim.lr");
  optim::require_not_negative(options.eps, "epsilon value", "optim.eps");
  for (const int i : {0, 1}) {
    const double beta = i == 0 ? options.beta1 : options.beta2;
    optim::require(beta >= 0 && beta < 1, format("Invalid beta parameter at index {}: {}", i, beta),
                   "optim.betas", "give a number from 0 to below 1");
  }
  optim::require_not_negative(options.weight_decay, "weight_decay value", "optim.weight_decay");
}

}  // namespace

Adam::Adam(std::vector<at::Tensor> params, const AdamOptions& options)
    : Adam(std::vector<ParameterGroup<AdamOptions>>{{std::move(params), options}}) {}

Adam::Adam(const std::vector<ParameterGroup<AdamOptions>>& groups)
    : KernelOptimizer(groups), moments_(parameters().size()) {
  for (const auto& group : groups) {
    check_adam(group.options);
    options_.push_back(group.options);
  }
}

bool Adam::fuse() {
  if (!KernelOptimizer::fuse()) return false;
  for (size_t i = 0; i < moments_.size(); ++i)
    if (moments_[i].step.defined()) moments_[i].step = moments_[i].step.to(step_options(i).device());
  return true;
}

// Counted on the host, unless the fused kernel needs the count.
at::TensorOptions Adam::step_options(size_t index) const {
  return at::TensorOptions(at::kFloat)
      .device(is_fused() ? parameters()[index].device() : at::Device(at::kCPU));
}

Adam::Moments& Adam::moments_of(const Slot& slot) {
  auto& moments = moments_[slot.index];
  if (!moments.step.defined()) {
    moments.step = at::zeros({}, step_options(slot.index));
    moments.exp_avg = at::zeros_like(slot.param);
    moments.exp_avg_sq = at::zeros_like(slot.param);
  }
  return moments;
}

Adam::Correction Adam::advance(const Slot& slot, size_t group) {
  const auto& options = options_[group];
  auto& moments = moments_of(slot);
  auto& count = *moments.step.mutable_data_ptr<float>();
  count += 1;
  // pow, where sqrt would do: Python's ** is libm's pow.
  const auto bias_correction1 = 1 - std::pow(options.beta1, static_cast<double>(count));
  const auto bias_correction2 = 1 - std::pow(options.beta2, static_cast<double>(count));
  return {lr(group) / bias_correction1, std::pow(bias_correction2, 0.5)};
}

void Adam::update_one(const Slot& slot, size_t group) {
  const auto& options = options_[group];
  const auto [step_size, bias_correction2_sqrt] = advance(slot, group);
  const auto& moments = moments_[slot.index];
  auto grad = slot.grad;
  auto memory = scratch(slot.param);
  if (options.weight_decay != 0) {
    if (options.decoupled_weight_decay) {
      slot.param.mul_(base::python_scalar(1 - lr(group) * options.weight_decay));
    } else {
      at::add_out(memory, grad, slot.param, options.weight_decay);
      grad = memory;  // read before the memory becomes the denominator
    }
  }
  grad = as_real(grad);
  auto denominator = as_real(memory), exp_avg = as_real(moments.exp_avg),
       exp_avg_sq = as_real(moments.exp_avg_sq);
  exp_avg.lerp_(grad, 1 - options.beta1);
  exp_avg_sq.mul_(base::python_scalar(options.beta2)).addcmul_(grad, grad, 1 - options.beta2);
  at::sqrt_out(denominator, exp_avg_sq);
  denominator.div_(bias_correction2_sqrt).add_(options.eps);
  as_real(slot.param).addcdiv_(exp_avg, denominator, -step_size);
}

void Adam::update_together(const std::vector<Slot>& slots, size_t group) {
  const auto& options = options_[group];
  std::vector<at::Tensor> params, grads, exp_avgs, exp_avg_sqs;
  std::vector<at::Scalar> roots, step_sizes;
  for (const auto& slot : slots) {
    const auto [step_size, bias_correction2_sqrt] = advance(slot, group);
    params.push_back(as_real(slot.param));
    grads.push_back(as_real(slot.grad));
    exp_avgs.push_back(as_real(moments_[slot.index].exp_avg));
    exp_avg_sqs.push_back(as_real(moments_[slot.index].exp_avg_sq));
    roots.emplace_back(bias_correction2_sqrt);
    step_sizes.emplace_back(-step_size);
  }
  if (options.weight_decay != 0) {
    if (options.decoupled_weight_decay) {
      at::_foreach_mul_(params, 1 - lr(group) * options.weight_decay);
    } else {
      grads = at::_foreach_add(grads, params, options.weight_decay);
    }
  }
  at::_foreach_lerp_(exp_avgs, grads, 1 - options.beta1);
  at::_foreach_mul_(exp_avg_sqs, options.beta2);
  at::_foreach_addcmul_(exp_avg_sqs, grads, grads, 1 - options.beta2);
  auto denominators = at::_foreach_sqrt(exp_avg_sqs);
  at::_foreach_div_(denominators, roots);
  at::_foreach_add_(denominators, options.eps);
  at::_foreach_addcdiv_(params, exp_avgs, denominators, step_sizes);
}

void Adam::update_fused(const std::vector<Slot>& slots, size_t group) {
  const auto& options = options_[group];
  std::vector<at::Tensor> params, grads, exp_avgs, exp_avg_sqs, steps;
  for (const auto& slot : slots) {
    const auto& [step, exp_avg, exp_avg_sq] = moments_of(slot);
    params.push_back(slot.param);
    grads.push_back(laid_out_as(slot.param, slot.grad));
    exp_avgs.push_back(exp_avg);
    exp_avg_sqs.push_back(exp_avg_sq);
    steps.push_back(step);
  }
  at::_foreach_add_(steps, 1);
  const auto update = [&](const auto& kernel) {
    kernel(params, grads, exp_avgs, exp_avg_sqs, {}, steps, rate_on_device(group), options.beta1,
           options.beta2, options.weight_decay, options.eps, /*amsgrad=*/false, /*maximize=*/false, {}, {});
  };
  if (options.decoupled_weight_decay) {
    update(at::_ops::_fused_adamw__tensor_lr::call);
  } else {
    update(at::_ops::_fused_adam__tensor_lr::call);
  }
}

int64_t Adam::state_bytes(size_t index) const {
  return 2 * static_cast<int64_t>(parameters()[index].nbytes()) + static_cast<int64_t>(sizeof(float));
}

Tree Adam::state_of(size_t index) const {
  const auto& [step, exp_avg, exp_avg_sq] = moments_[index];
  if (!step.defined()) return {};
  return make_dict({{"step", step}, {"exp_avg", exp_avg}, {"exp_avg_sq", exp_avg_sq}});
}

void Adam::set_state_of(size_t index, const Tree& state) {
  moments_[index] = {};
  if (state.isNone() || !find(state, "step")) return;
  const auto step = as_double(get(state, "step"), "step");
  moments_[index] = {at::full({}, step, step_options(index)), fit(index, get(state, "exp_avg"), "exp_avg"),
                     fit(index, get(state, "exp_avg_sq"), "exp_avg_sq")};
}

std::vector<std::pair<Tree, Tree>> Adam::options_of(size_t group) const {
  const auto& options = options_[group];
  return {{"betas", c10::ivalue::Tuple::create({options.beta1, options.beta2})},
          {"eps", options.eps},
          {"weight_decay", options.weight_decay},
          {"amsgrad", false},
          {"maximize", false},
          {"foreach", Tree()},
          {"capturable", false},
          {"differentiable", false},
          {"fused", Tree()},
          {"decoupled_weight_decay", options.decoupled_weight_decay}};
}

void Adam::set_options_of(size_t group, const Tree& saved) {
  const auto decoupled = find(saved, "decoupled_weight_decay");
  const auto is_adamw = decoupled && as_bool(*decoupled, "decoupled_weight_decay");
  if (!find(saved, "betas") || (is_adamw && !options_[group].decoupled_weight_decay))
    throw InputError(
        format("the checkpoint's optimizer state is {}", is_adamw ? "AdamW's" : "not Adam's"),
        "optimizer.param_groups",
        is_adamw ? "set optim.name to adamw" : "set optim.name to sgd, or to the one that wrote it");
  const auto betas = elements(get(saved, "betas"));
  if (betas.size() != 2)
    throw InputError(format("\"betas\" in the checkpoint has {} values, not 2", betas.size()),
                     "optimizer.param_groups", kFreshOptimizer);
  if (const auto amsgrad = find(saved, "amsgrad"); amsgrad && as_bool(*amsgrad, "amsgrad"))
    throw InputError("the checkpoint's optimizer uses amsgrad, which is not supported",
                     "optimizer.param_groups", kFreshOptimizer);
  auto loaded = options_[group];
  loaded.lr = lr(group);
  loaded.beta1 = as_double(betas[0], "betas");
  loaded.beta2 = as_double(betas[1], "betas");
  loaded.eps = as_double(get(saved, "eps"), "eps");
  loaded.weight_decay = as_double(get(saved, "weight_decay"), "weight_decay");
  check_adam(loaded);
  options_[group] = loaded;
}

namespace {

AdamOptions options_in(const OptimSettings& s, bool decoupled) {
  return {.lr = s.lr,
          .beta1 = s.betas[0],
          .beta2 = s.betas[1],
          .eps = s.eps,
          .weight_decay = s.weight_decay,
          .decoupled_weight_decay = decoupled};
}

template <bool kDecoupled>
std::unique_ptr<Optimizer> make(const OptimGroups& groups) {
  std::vector<ParameterGroup<AdamOptions>> own;
  for (const auto& [params, settings] : groups) own.push_back({params, options_in(settings, kDecoupled)});
  return std::make_unique<Adam>(own);
}

}  // namespace

LOCKSTEP_OPTIMIZER(adam, .help = "Adam; weight decay is part of the gradient",
                   .reads = {"weight_decay", "betas", "eps", "no_decay"}, .make_groups = make<false>)
LOCKSTEP_OPTIMIZER(adamw, .help = "Adam with decoupled weight decay",
                   .reads = {"weight_decay", "betas", "eps", "no_decay"},
                   .defaults = {{"optim.weight_decay", "0.01"}}, .make_groups = make<true>)

}  // namespace lockstep
