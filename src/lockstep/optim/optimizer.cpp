#include "lockstep/optim/optimizer.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep {

namespace {

constexpr const char* kSameConfig = "use the config that the checkpoint was trained with";

std::vector<at::Tensor> without_duplicates(std::vector<at::Tensor> params) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::erase_if(params,
                [&](const at::Tensor& param) { return !seen.insert(param.unsafeGetTensorImpl()).second; });
  return params;
}

}  // namespace

Optimizer::Optimizer(std::vector<at::Tensor> params, double lr)
    : params_(without_duplicates(std::move(params))), lr_(lr) {
  if (params_.empty())
    throw InputError("the optimiser got no parameters", "Optimizer", "give it the module's parameters()");
}

void Optimizer::step() {
  const torch::NoGradGuard no_grad;
  std::vector<Slot> slots;
  slots.reserve(params_.size());
  for (size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].grad().defined()) slots.push_back({i, params_[i], params_[i].grad()});
  }
  if (!slots.empty()) update(slots);
}

void Optimizer::zero_grad(bool set_to_none) {
  for (auto& param : params_) {
    auto& grad = param.mutable_grad();
    if (!grad.defined()) continue;
    // reset, not detach: gradients may be views into DDP's buckets.
    if (set_to_none) {
      grad.reset();
    } else {
      grad.zero_();
    }
  }
}

Tree Optimizer::state_dict() const {
  auto state = make_dict();
  auto indices = make_list();
  for (size_t i = 0; i < params_.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    append(indices, index);
    if (auto own = state_of(i); !own.isNone()) put(state, index, own);
  }
  auto first = make_dict({{"lr", lr_}});
  for (const auto& [key, value] : group()) put(first, key, value);
  for (const auto& [key, value] : extras_) put(first, key, value);
  put(first, "params", indices);
  return make_dict({{"state", state}, {"param_groups", make_list({first})}});
}

void Optimizer::load_state_dict(const Tree& state) {
  const auto groups = elements(get(state, "param_groups"));
  if (groups.size() != 1) {
    throw InputError(
        format("the checkpoint's optimiser has {} parameter groups; one is supported", groups.size()),
        "optimizer.param_groups", kFreshOptimizer);
  }
  if (const auto maximize = find(groups[0], "maximize"); maximize && as_bool(*maximize, "maximize")) {
    throw InputError("the checkpoint's optimiser maximises, which is not supported", "optimizer.param_groups",
                     kFreshOptimizer);
  }
  const auto indices = elements(get(groups[0], "params"));
  if (indices.size() != params_.size()) {
    throw InputError(format("the checkpoint's optimiser has {} parameters, this model's has {}",
                            indices.size(), params_.size()),
                     "optimizer.param_groups", kSameConfig);
  }
  lr_ = as_double(get(groups[0], "lr"), "lr");
  set_group(groups[0]);
  const auto states = get(state, "state");
  for (size_t i = 0; i < params_.size(); ++i) {
    set_state_of(i, find(states, indices[i]).value_or(Tree()));
  }
  extras_.clear();
  for (const char* name : {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"}) {
    if (const auto value = find(groups[0], name)) extras_.emplace_back(name, as_double(*value, name));
  }
}

at::Tensor Optimizer::scratch(const at::Tensor& like) {
  if (!like.is_non_overlapping_and_dense()) return at::empty_like(like);
  const auto usable = scratch_.defined() && scratch_.options().type_equal(like.options());
  if (!usable || scratch_.numel() < like.numel()) scratch_ = at::empty({like.numel()}, like.options());
  return scratch_.as_strided(like.sizes(), like.strides());
}

at::Tensor Optimizer::fit(size_t index, const Tree& value, const std::string& name) const {
  const auto& param = params_[index];
  if (!value.isTensor() || value.toTensor().sizes() != param.sizes()) {
    throw InputError(format("\"{}\" of parameter {} in the checkpoint's optimiser is no tensor of shape {}",
                            name, index, c10::str(param.sizes())),
                     "optimizer.state", kSameConfig);
  }
  return at::empty_like(param, param.options().requires_grad(false)).copy_(value.toTensor());
}

}  // namespace lockstep
