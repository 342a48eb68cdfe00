#include "lockstep/optim/optimizer.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/local_gradients.h"
#include "lockstep/base/plugins/tables.h"
#include "lockstep/base/text.h"

namespace lockstep {

// Which parameters decay: by parts of their names, as in transformers' Trainer.

namespace {

bool has(const NamedParameter& parameter, const std::string& part) {
  return parameter.first.find(part) != std::string::npos;
}

void check_parts(const std::vector<std::string>& parts, const std::vector<NamedParameter>& parameters) {
  for (const auto& part : parts) {
    const auto in_name = [&](const auto& parameter) { return has(parameter, part); };
    if (!part.empty() && std::any_of(parameters.begin(), parameters.end(), in_name)) continue;
    throw InputError(format("no parameter's name contains '{}'", base::printable(part)), "optim.no_decay",
                     "use parts of the names that `lockstep inspect CHECKPOINT` lists, or leave it out");
  }
}

}  // namespace

OptimGroups decay_groups(const OptimSettings& settings, const std::vector<NamedParameter>& parameters) {
  const auto& parts = settings.no_decay;
  check_parts(parts, parameters);
  OptimGroups groups{{{}, settings}, {{}, settings}};
  groups[1].options.weight_decay = 0;
  std::unordered_set<const c10::TensorImpl*> seen;  // a tied parameter has its first name
  for (const auto& parameter : parameters) {
    if (!seen.insert(parameter.second.unsafeGetTensorImpl()).second) continue;
    const bool spared =
        std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return has(parameter, part); });
    groups[spared].params.push_back(parameter.second);
  }
  if (groups[1].params.empty()) groups.pop_back();
  if (groups[0].params.empty() && groups.size() > 1) groups.erase(groups.begin());
  return groups;
}

// The optimizer that a config names, from the table of optimizers.

std::unique_ptr<Optimizer> make_optimizer(const OptimSettings& settings, std::vector<at::Tensor> params) {
  return make_optimizer({{std::move(params), settings}});
}

std::unique_ptr<Optimizer> make_optimizer(const OptimGroups& groups) {
  const auto& name = groups.at(0).options.name;
  const auto& row = base::require<OptimizerRow>("optimizer", name, "optim.name");
  if (row.make_groups) return base::made(row.make_groups(groups), "optimizer", name, "optim.name");
  if (groups.size() > 1)
    throw InputError(
        format("the optimizer {} supports one group of parameters, and optim.no_decay makes two", name),
        "optim.no_decay", "leave it out, or use sgd, adam or adamw");
  return base::made(row.make(groups[0].options, groups[0].params), "optimizer", name, "optim.name");
}

namespace {

constexpr const char* kSameConfig = "use the config that the checkpoint was trained with";
constexpr const char* kSameGroups =
    "use the config, or group the parameters as the program did, that the checkpoint was trained with";

}  // namespace

void Optimizer::set_groups(const std::vector<ParameterGroup<double>>& rates) {
  std::unordered_map<const c10::TensorImpl*, size_t> group_of;
  for (const auto& [params, lr] : rates) {
    const auto begin = params_.size();
    for (const auto& param : params) {
      const auto [seen, is_new] = group_of.emplace(param.unsafeGetTensorImpl(), groups_.size());
      if (is_new) params_.push_back(param);
      if (seen->second == groups_.size()) continue;
      throw InputError(
          format("some parameters appear in more than one parameter group: one of shape {} in {} and {}",
                 c10::str(param.sizes()), seen->second, groups_.size()),
          "Optimizer", "give each parameter to one group");
    }
    groups_.push_back({begin, params_.size(), lr, {}});
  }
  if (params_.empty())
    throw InputError("the optimizer has no parameters", "Optimizer", "pass the module's parameters()");
}

void Optimizer::set_lr(double lr) {
  for (size_t group = 0; group < groups_.size(); ++group) set_lr(lr, group);
}

void Optimizer::set_lr(double lr, size_t group) {
  const double before = std::exchange(groups_.at(group).lr, lr);
  if (!rates_.empty() && lr != before) rates_[group].fill_(lr);
}

void Optimizer::keep_rates_on_device() {
  rates_.clear();
  for (const auto& group : groups_) {
    const auto device = params_[group.begin].device();
    rates_.push_back(at::full({}, group.lr, at::TensorOptions(at::kFloat).device(device)));
  }
}

void Optimizer::refuse_local_gradients() const {
  if (!base::has_local_gradients()) return;
  std::vector<std::string> names;
  for (const auto& param : params_) {
    if (!param.grad().defined()) continue;
    auto name = base::local_gradient(param.unsafeGetTensorImpl(), param.grad().unsafeGetTensorImpl());
    if (!name.empty()) names.push_back(std::move(name));
  }
  if (names.empty()) return;
  throw Error(
      format(
          "cannot step {} with gradients of this rank only: a backward without gradient exchange made them",
          base::first_of(names)),
      "Optimizer", base::kExchangeGradients);
}

void Optimizer::step() {
  const torch::NoGradGuard no_grad;
  refuse_local_gradients();
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::vector<Slot> slots;
    slots.reserve(groups_[group].end - groups_[group].begin);
    for (auto i = groups_[group].begin; i < groups_[group].end; ++i) {
      if (params_[i].grad().defined()) slots.push_back({i, params_[i], params_[i].grad()});
    }
    if (!slots.empty()) update(slots, group);
  }
}

void Optimizer::zero_grad(bool set_to_none) {
  for (auto& param : params_) {
    auto& grad = param.mutable_grad();
    if (!grad.defined()) continue;
    if (base::has_local_gradients()) base::unmark_local_gradient(param.unsafeGetTensorImpl());
    // reset, not detach: gradients may be views into DDP's buckets.
    if (set_to_none) {
      grad.reset();
    } else {
      grad.zero_();
    }
  }
}

Tree Optimizer::state_dict() const {
  return make_dict({{"state", held_state()}, {"param_groups", group_dicts()}});
}

Tree Optimizer::held_state() const {
  auto state = make_dict();
  for (size_t i = 0; i < params_.size(); ++i)
    if (auto own = state_of(i); !own.isNone()) put(state, static_cast<int64_t>(i), own);
  return state;
}

Tree Optimizer::group_dicts() const {
  auto groups = make_list();
  for (size_t group = 0; group < groups_.size(); ++group) append(groups, group_dict(group));
  return groups;
}

Tree Optimizer::group_dict(size_t group) const {
  const auto& [begin, end, own_lr, extras] = groups_[group];
  auto dict = make_dict({{"lr", lr(group)}});
  for (const auto& [key, value] : options_of(group)) put(dict, key, value);
  for (const auto& [key, value] : extras) put(dict, key, value);
  auto indices = make_list();
  for (auto i = begin; i < end; ++i) append(indices, static_cast<int64_t>(i));
  put(dict, "params", indices);
  return dict;
}

void Optimizer::load_state_dict(const Tree& state) {
  const auto groups = elements(get(state, "param_groups"));
  refuse_other_groups(groups);
  for (size_t group = 0; group < groups.size(); ++group) load_group(group, groups[group]);
  const auto states = get(state, "state");
  size_t i = 0;
  for (const auto& group : groups) {
    for (const auto& index : elements(get(group, "params")))
      set_state_of(i++, find(states, index).value_or(Tree()));
  }
}

void Optimizer::refuse_other_groups(const std::vector<Tree>& groups) const {
  if (groups.size() != groups_.size())
    throw InputError(format("the checkpoint's optimizer has {}, but this one has {}",
                            base::counted(std::ssize(groups), "parameter group"), groups_.size()),
                     "optimizer.param_groups", kSameGroups);
  for (size_t group = 0; group < groups.size(); ++group) {
    const auto theirs = elements(get(groups[group], "params")).size();
    const auto ours = groups_[group].end - groups_[group].begin;
    if (theirs == ours) continue;
    const auto place = groups.size() == 1 ? std::string() : format(" in parameter group {}", group);
    throw InputError(
        format("the checkpoint's optimizer has {} parameters{}, this model's has {}", theirs, place, ours),
        "optimizer.param_groups", groups.size() == 1 ? kSameConfig : kSameGroups);
  }
}

void Optimizer::load_group(size_t group, const Tree& saved) {
  if (const auto maximize = find(saved, "maximize"); maximize && as_bool(*maximize, "maximize")) {
    throw InputError("the checkpoint's optimizer uses maximize, which is not supported",
                     "optimizer.param_groups", kFreshOptimizer);
  }
  auto& own = groups_[group];
  set_lr(as_double(get(saved, "lr"), "lr"), group);
  set_options_of(group, saved);
  own.extras.clear();
  for (const char* name : {"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"})
    if (const auto value = find(saved, name)) own.extras.emplace_back(name, as_double(*value, name));
}

at::Tensor Optimizer::scratch(const at::Tensor& like) {
  if (!like.is_non_overlapping_and_dense()) return at::empty_like(like);
  const auto usable = scratch_.defined() && scratch_.options().type_equal(like.options());
  if (!usable || scratch_.numel() < like.numel()) scratch_ = at::empty({like.numel()}, like.options());
  return scratch_.as_strided(like.sizes(), like.strides());
}

size_t Optimizer::group_of(size_t index) const {
  size_t group = 0;
  while (index >= groups_.at(group).end) ++group;
  return group;
}

at::Tensor Optimizer::fit(size_t index, const Tree& value, const std::string& name) const {
  const auto& param = params_[index];
  if (!value.isTensor() || value.toTensor().sizes() != param.sizes()) {
    throw InputError(
        format("\"{}\" of parameter {} in the checkpoint's optimizer is not a tensor of shape {}", name,
               index, c10::str(param.sizes())),
        "optimizer.state", kSameConfig);
  }
  return at::empty_like(param, param.options().requires_grad(false)).copy_(value.toTensor());
}

namespace {

// Kernels over many tensors take those of one device and one type at a time, as Python groups them.
template <class Slot, class Work>
void per_kind(const std::vector<Slot>& slots, const Work& work) {
  const auto kind_of = [](const Slot& slot) {
    return std::pair(slot.param.device().index(), slot.param.scalar_type());
  };
  const auto first = kind_of(slots.front());
  if (std::ranges::all_of(slots, [&](const Slot& slot) { return kind_of(slot) == first; }))
    return work(slots);
  std::map<std::pair<c10::DeviceIndex, at::ScalarType>, std::vector<Slot>> kinds;
  for (const auto& slot : slots) kinds[kind_of(slot)].push_back(slot);
  for (const auto& [kind, alike] : kinds) work(alike);
}

}  // namespace

bool KernelOptimizer::fuse() {
  const auto is_complex = [](const at::Tensor& param) { return param.is_complex(); };
  if (std::ranges::any_of(parameters(), is_complex)) return false;  // no fused kernel takes it
  keep_rates_on_device();
  return fused_ = true;
}

void KernelOptimizer::update(const std::vector<Slot>& slots, size_t group) {
  const auto is_on_gpu = [](const Slot& slot) { return slot.param.is_cuda(); };
  if (fused_) return per_kind(slots, [&](const auto& alike) { update_fused(alike, group); });
  if (std::ranges::all_of(slots, is_on_gpu))
    return per_kind(slots, [&](const auto& alike) { update_together(alike, group); });
  for (const auto& slot : slots) update_one(slot, group);
}

at::Tensor KernelOptimizer::laid_out_as(const at::Tensor& param, const at::Tensor& grad) {
  if (grad.strides() == param.strides()) return grad;
  for (int64_t d = 0; d < param.dim(); ++d)
    if (param.size(d) > 1 && param.stride(d) != grad.stride(d)) return at::empty_like(param).copy_(grad);
  return grad.as_strided(param.sizes(), param.strides());
}

void optim::require(bool holds, const std::string& what, const std::string& where, const std::string& hint) {
  if (!holds) throw InputError(what, where, hint);
}

void optim::require_not_negative(double value, const std::string& name, const std::string& where) {
  require(value >= 0, format("Invalid {}: {}", name, value), where, "give a number that is 0 or more");
}

}  // namespace lockstep
