#include "lockstep/optim/sgd.h"

#include <torch/types.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/python_scalar.h"
#include "lockstep/kernels/sgd.h"

namespace lockstep {

namespace {

void check_sgd(const SgdOptions& options) {
  optim::require_not_negative(options.lr, "learning rate", "optim.lr");
  optim::require_not_negative(options.momentum, "momentum value", "optim.momentum");
  optim::require_not_negative(options.weight_decay, "weight_decay value", "optim.weight_decay");
  optim::require(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
                 "Nesterov momentum requires a momentum and zero dampening", "optim.nesterov",
                 "set optim.momentum above 0 and leave dampening at 0, or turn nesterov off");
}

bool is_row_of_floats(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.layout() == at::kStrided &&
         !tensor.is_neg() && !tensor._is_zerotensor() && tensor.is_non_overlapping_and_dense() &&
         tensor.sizes() == like.sizes() && tensor.strides() == like.strides();
}

}  // namespace

Sgd::Sgd(std::vector<at::Tensor> params, const SgdOptions& options)
    : Sgd(std::vector<ParameterGroup<SgdOptions>>{{std::move(params), options}}) {}

Sgd::Sgd(const std::vector<ParameterGroup<SgdOptions>>& groups)
    : KernelOptimizer(groups), buffers_(parameters().size()) {
  for (const auto& group : groups) {
    check_sgd(group.options);
    options_.push_back(group.options);
  }
}

bool Sgd::update_in_one_pass(const Slot& slot, size_t group) {
  const auto& options = options_[group];
  auto& buffer = buffers_[slot.index];
  const bool has_momentum = options.momentum != 0;
  if (has_momentum && !buffer.defined()) return false;
  for (const auto* tensor : {&slot.param, &slot.grad, has_momentum ? &buffer : &slot.grad})
    if (!is_row_of_floats(*tensor, slot.param)) return false;
  const kernels::SgdFactors numbers = {.lr = static_cast<float>(lr(group)),
                                       .momentum = static_cast<float>(options.momentum),
                                       .dampening_left = static_cast<float>(1 - options.dampening),
                                       .weight_decay = static_cast<float>(options.weight_decay),
                                       .nesterov = options.nesterov};
  kernels::take_sgd_step(numbers, slot.param.mutable_data_ptr<float>(), slot.grad.const_data_ptr<float>(),
                         has_momentum ? buffer.mutable_data_ptr<float>() : nullptr, slot.param.numel(),
                         kernels::level());
  slot.param.unsafeGetTensorImpl()->bump_version();  // so that a graph that needs the old values throws
  return true;
}

void Sgd::update_one(const Slot& slot, size_t group) {
  if (kernels::pays_sgd(slot.param.numel()) && update_in_one_pass(slot, group)) return;
  const auto& options = options_[group];
  auto grad = slot.grad;
  if (options.weight_decay != 0) {
    auto decayed = scratch(slot.param);
    at::add_out(decayed, grad, slot.param, options.weight_decay);
    grad = decayed;
  }
  if (options.momentum != 0) {
    auto& buffer = buffers_[slot.index];
    if (buffer.defined()) {
      buffer.mul_(base::python_scalar(options.momentum)).add_(grad, 1 - options.dampening);
    } else {
      buffer = grad.clone();
    }
    if (options.nesterov) {
      auto ahead = scratch(slot.param);
      at::add_out(ahead, grad, buffer, options.momentum);
      grad = ahead;
    } else {
      grad = buffer;
    }
  }
  slot.param.add_(grad, -lr(group));
}

void Sgd::update_together(const std::vector<Slot>& slots, size_t group) {
  const auto& options = options_[group];
  std::vector<at::Tensor> params, grads, buffers;
  for (const auto& slot : slots) {
    params.push_back(slot.param);
    grads.push_back(slot.grad);
  }
  if (options.weight_decay != 0) grads = at::_foreach_add(grads, params, options.weight_decay);
  if (options.momentum != 0) {
    std::vector<at::Tensor> old_buffers, their_grads;
    for (size_t i = 0; i < slots.size(); ++i) {
      auto& buffer = buffers_[slots[i].index];
      if (buffer.defined()) {
        old_buffers.push_back(buffer);
        their_grads.push_back(grads[i]);
      } else {
        buffer = grads[i].clone();
      }
      buffers.push_back(buffer);
    }
    if (!old_buffers.empty()) {
      at::_foreach_mul_(old_buffers, options.momentum);
      at::_foreach_add_(old_buffers, their_grads, 1 - options.dampening);
    }
  }
  if (!buffers.empty())
    grads = options.nesterov ? at::_foreach_add(grads, buffers, options.momentum) : buffers;
  at::_foreach_add_(params, grads, -lr(group));
}

void Sgd::update_fused(const std::vector<Slot>& slots, size_t group) {
  struct {
    std::vector<at::Tensor> params, grads, buffers;
  } all[2];  // those with a buffer, and those whose first gradient becomes it
  const auto& options = options_[group];
  for (const auto& slot : slots) {
    auto& buffer = buffers_[slot.index];
    const bool first = options.momentum != 0 && !buffer.defined();
    if (first) buffer = at::empty_like(slot.param);
    all[first].params.push_back(slot.param);
    all[first].grads.push_back(laid_out_as(slot.param, slot.grad));
    if (options.momentum != 0) all[first].buffers.push_back(buffer);
  }
  for (const bool first : {false, true}) {
    const auto& [params, grads, buffers] = all[first];
    if (params.empty()) continue;
    at::_fused_sgd_(params, grads, buffers, options.weight_decay, options.momentum, rate_on_device(group),
                    options.dampening, options.nesterov, /*maximize=*/false, first);
  }
}

int64_t Sgd::state_bytes(size_t index) const {
  return momentum(group_of(index)) != 0 ? static_cast<int64_t>(parameters()[index].nbytes()) : 0;
}

Tree Sgd::state_of(size_t index) const {
  if (!buffers_[index].defined()) return {};
  return make_dict({{"momentum_buffer", buffers_[index]}});
}

void Sgd::set_state_of(size_t index, const Tree& state) {
  const auto buffer = find(state, "momentum_buffer");
  buffers_[index] = buffer && !buffer->isNone() ? fit(index, *buffer, "momentum_buffer") : at::Tensor();
}

std::vector<std::pair<Tree, Tree>> Sgd::options_of(size_t group) const {
  const auto& options = options_[group];
  return {{"momentum", options.momentum},
          {"dampening", options.dampening},
          {"weight_decay", options.weight_decay},
          {"nesterov", options.nesterov},
          {"maximize", false},
          {"foreach", Tree()},
          {"differentiable", false},
          {"fused", Tree()}};
}

void Sgd::set_options_of(size_t group, const Tree& saved) {
  if (!find(saved, "momentum"))
    throw InputError("the checkpoint's optimizer state is not SGD's", "optimizer.param_groups",
                     "set optim.name to adam or adamw, or to the one that wrote it");
  auto loaded = options_[group];
  loaded.lr = lr(group);
  loaded.momentum = as_double(get(saved, "momentum"), "momentum");
  loaded.dampening = as_double(get(saved, "dampening"), "dampening");
  loaded.weight_decay = as_double(get(saved, "weight_decay"), "weight_decay");
  loaded.nesterov = as_bool(get(saved, "nesterov"), "nesterov");
  check_sgd(loaded);
  options_[group] = loaded;
}

namespace {

std::unique_ptr<Optimizer> make_sgd(const OptimGroups& groups) {
  std::vector<ParameterGroup<SgdOptions>> own;
  for (const auto& [params, s] : groups) {
    own.push_back(
        {params,
         {.lr = s.lr, .momentum = s.momentum, .weight_decay = s.weight_decay, .nesterov = s.nesterov}});
  }
  return std::make_unique<Sgd>(own);
}

}  // namespace

LOCKSTEP_OPTIMIZER(sgd, .help = "stochastic gradient descent, with momentum",
                   .reads = {"momentum", "weight_decay", "nesterov", "no_decay"}, .make_groups = make_sgd)

}  // namespace lockstep
