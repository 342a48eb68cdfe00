#include "lockstep/optim/torch_optimizer.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep {
namespace {

namespace theirs = torch::optim;
using Betas = std::tuple<double, double>;

struct TorchField {
  const char* name;
  std::variant<double*, bool*, int64_t*, at::Tensor*, Betas*> value;
};
using TorchFields = std::vector<TorchField>;

TorchFields fields_of(theirs::SGDOptions& of) {
  return {{"momentum", &of.momentum()},
          {"dampening", &of.dampening()},
          {"weight_decay", &of.weight_decay()},
          {"nesterov", &of.nesterov()}};
}

TorchFields fields_of(theirs::SGDParamState& of) {
  return {{"momentum_buffer", &of.momentum_buffer()}};
}

TorchFields fields_of(theirs::RMSpropOptions& of) {
  return {{"alpha", &of.alpha()},
          {"eps", &of.eps()},
          {"weight_decay", &of.weight_decay()},
          {"momentum", &of.momentum()},
          {"centered", &of.centered()}};
}

TorchFields fields_of(theirs::RMSpropParamState& of) {
  return {{"step", &of.step()},
          {"square_avg", &of.square_avg()},
          {"momentum_buffer", &of.momentum_buffer()},
          {"grad_avg", &of.grad_avg()}};
}

TorchFields fields_of(theirs::AdagradOptions& of) {
  return {{"lr_decay", &of.lr_decay()},
          {"weight_decay", &of.weight_decay()},
          {"initial_accumulator_value", &of.initial_accumulator_value()},
          {"eps", &of.eps()}};
}

TorchFields fields_of(theirs::AdagradParamState& of) {
  return {{"step", &of.step()}, {"sum", &of.sum()}};
}

// Of Adam and AdamW, whose classes are not related.
template <class Of>
TorchFields fields_of(Of& of) {
  if constexpr (std::derived_from<Of, theirs::OptimizerOptions>)
    return {{"betas", &of.betas()},
            {"eps", &of.eps()},
            {"weight_decay", &of.weight_decay()},
            {"amsgrad", &of.amsgrad()}};
  else
    return {{"step", &of.step()},
            {"exp_avg", &of.exp_avg()},
            {"exp_avg_sq", &of.exp_avg_sq()},
            {"max_exp_avg_sq", &of.max_exp_avg_sq()}};
}

struct TorchKind {
  const char* name;
  std::optional<bool> decoupled_weight_decay;         // by which Python tells Adam from AdamW
  std::vector<const char*> needed;                    // in a state
  bool has_state_at_once;                             // made with the optimizer, which cannot do without it
  TorchFields (*options)(theirs::OptimizerOptions&);  // empty: of another class
  TorchFields (*state)(theirs::OptimizerParamState&);
  std::unique_ptr<theirs::OptimizerParamState> (*make_state)();
};

template <class Options, class State>
TorchKind kind(const char* name, std::optional<bool> decoupled, std::vector<const char*> needed,
               bool at_once = false) {
  return {name,
          decoupled,
          std::move(needed),
          at_once,
          [](theirs::OptimizerOptions& it) {
            auto* own = dynamic_cast<Options*>(&it);
            return own ? fields_of(*own) : TorchFields();
          },
          [](theirs::OptimizerParamState& it) { return fields_of(dynamic_cast<State&>(it)); },
          []() -> std::unique_ptr<theirs::OptimizerParamState> { return std::make_unique<State>(); }};
}

const TorchKind& kind_of(theirs::OptimizerOptions& options) {
  static const std::vector<TorchKind> kinds = {
      kind<theirs::SGDOptions, theirs::SGDParamState>("SGD", std::nullopt, {"momentum_buffer"}),
      kind<theirs::AdamOptions, theirs::AdamParamState>("Adam", false, {"exp_avg", "exp_avg_sq"}),
      kind<theirs::AdamWOptions, theirs::AdamWParamState>("AdamW", true, {"exp_avg", "exp_avg_sq"}),
      kind<theirs::RMSpropOptions, theirs::RMSpropParamState>("RMSprop", std::nullopt, {"square_avg"}),
      kind<theirs::AdagradOptions, theirs::AdagradParamState>("Adagrad", std::nullopt, {"sum"}, true),
  };
  for (const auto& kind : kinds)
    if (!kind.options(options).empty()) return kind;
  throw InputError("this optimizer of torch::optim is not one of SGD, Adam, AdamW, RMSprop and Adagrad",
                   "TorchOptimizer", "use one of them; torch::save(optimizer, path) writes any");
}

struct TreeOf {
  Tree operator()(const double* value) const { return *value; }
  Tree operator()(const bool* value) const { return *value; }
  Tree operator()(const int64_t* step) const { return at::full({}, static_cast<double>(*step), at::kFloat); }
  Tree operator()(const at::Tensor* value) const { return value->defined() ? Tree(*value) : Tree(); }
  Tree operator()(const Betas* value) const {
    return c10::ivalue::Tuple::create({std::get<0>(*value), std::get<1>(*value)});
  }
};

struct TorchRate {
  double lr;
};

std::vector<ParameterGroup<TorchRate>> groups_of(const torch::optim::Optimizer& optimizer) {
  std::vector<ParameterGroup<TorchRate>> groups;
  for (const auto& group : optimizer.param_groups())
    groups.push_back({group.params(), {group.options().get_lr()}});
  return groups;
}

const TorchKind& kind_of(torch::optim::Optimizer& optimizer, size_t group) {
  return kind_of(optimizer.param_groups().at(group).options());
}

TorchFields fields_of_group(torch::optim::Optimizer& optimizer, size_t group) {
  return kind_of(optimizer, group).options(optimizer.param_groups().at(group).options());
}

template <class Value>
Value* find_field(const TorchFields& fields, const std::string& name) {
  for (const auto& field : fields)
    if (field.name == name) return std::get<Value*>(field.value);
  return nullptr;
}

}  // namespace

TorchOptimizer::TorchOptimizer(torch::optim::Optimizer& optimizer)
    : Optimizer(groups_of(optimizer)), optimizer_(optimizer) {
  for (size_t group = 0; group < group_count(); ++group) kind_of(optimizer_, group);
}

void TorchOptimizer::step() {
  if (optimizer_.param_groups().size() != group_count())
    throw Error("the optimizer has a parameter group that was added after it was wrapped", "TorchOptimizer",
                "add all groups before you make the TorchOptimizer");
  refuse_local_gradients();
  optimizer_.step();
}

void TorchOptimizer::update(const std::vector<Slot>&, size_t) {
  throw Error("ranks cannot share an optimizer of libtorch", "TorchOptimizer",
              "share lockstep's own optimizers");
}

double TorchOptimizer::lr(size_t group) const {
  return optimizer_.param_groups().at(group).options().get_lr();
}

void TorchOptimizer::set_lr(double lr, size_t group) {
  optimizer_.param_groups().at(group).options().set_lr(lr);
}

bool TorchOptimizer::has_betas() const {
  return find_field<Betas>(fields_of_group(optimizer_, 0), "betas") != nullptr;
}

double TorchOptimizer::momentum(size_t group) const {
  const auto fields = fields_of_group(optimizer_, group);
  if (const auto* betas = find_field<Betas>(fields, "betas")) return std::get<0>(*betas);
  const auto* momentum = find_field<double>(fields, "momentum");
  return momentum ? *momentum : 0;
}

void TorchOptimizer::set_momentum(double momentum, size_t group) {
  const auto fields = fields_of_group(optimizer_, group);
  if (auto* betas = find_field<Betas>(fields, "betas")) {
    std::get<0>(*betas) = momentum;
  } else if (auto* own = find_field<double>(fields, "momentum")) {
    *own = momentum;
  } else {
    throw InputError("this optimizer has no momentum to cycle", "TorchOptimizer",
                     "set schedule.cycle_momentum: false");
  }
}

int64_t TorchOptimizer::state_bytes(size_t index) const {
  const auto& kind = kind_of(optimizer_, group_of(index));
  const auto state = kind.make_state();
  const auto is_tensor = [](const TorchField& field) {
    return std::holds_alternative<at::Tensor*>(field.value);
  };
  return std::ranges::count_if(kind.state(*state), is_tensor) *
         static_cast<int64_t>(parameters()[index].nbytes());
}

Tree TorchOptimizer::state_of(size_t index) const {
  auto& states = optimizer_.state();
  const auto found = states.find(parameters()[index].unsafeGetTensorImpl());
  if (found == states.end()) return {};
  auto dict = make_dict();
  const auto& kind = kind_of(optimizer_, group_of(index));
  for (const auto& field : kind.state(*found->second)) {
    const auto value = std::visit(TreeOf(), field.value);
    if (!value.isNone()) put(dict, field.name, value);
  }
  return dict;
}

void TorchOptimizer::set_state_of(size_t index, const Tree& state) {
  void* const key = parameters()[index].unsafeGetTensorImpl();
  const auto& kind = kind_of(optimizer_, group_of(index));
  const auto has = [&](const char* name) {
    const auto value = state.isNone() ? std::nullopt : find(state, name);
    return value && !value->isNone();
  };
  if (std::ranges::none_of(kind.needed, has)) {  // no step was taken with it
    if (!kind.has_state_at_once) optimizer_.state().erase(key);
    return;
  }
  auto made = kind.make_state();
  for (const auto& [name, value] : kind.state(*made)) {
    if (!has(name)) {
      if (std::ranges::find(kind.needed, std::string(name)) != kind.needed.end())
        throw InputError(
            format("the checkpoint's optimizer state of parameter {} has no \"{}\"", index, name),
            "optimizer.state", kFreshOptimizer);
      continue;
    }
    const auto saved = get(state, name);
    if (auto* const* tensor = std::get_if<at::Tensor*>(&value)) **tensor = fit(index, saved, name);
    if (auto* const* step = std::get_if<int64_t*>(&value))
      **step = static_cast<int64_t>(as_double(saved, name));
  }
  optimizer_.state()[key] = std::move(made);
}

std::vector<std::pair<Tree, Tree>> TorchOptimizer::options_of(size_t group) const {
  std::vector<std::pair<Tree, Tree>> options;
  for (const auto& [name, value] : fields_of_group(optimizer_, group))
    options.emplace_back(name, std::visit(TreeOf(), value));
  const auto& decoupled = kind_of(optimizer_, group).decoupled_weight_decay;
  if (decoupled) options.emplace_back("decoupled_weight_decay", *decoupled);
  return options;
}

void TorchOptimizer::set_options_of(size_t group, const Tree& saved) {
  const auto& kind = kind_of(optimizer_, group);
  const auto decoupled = find(saved, "decoupled_weight_decay");
  const bool other = decoupled && kind.decoupled_weight_decay &&
                     as_bool(*decoupled, "decoupled_weight_decay") != *kind.decoupled_weight_decay;
  for (const auto& [name, value] : fields_of_group(optimizer_, group)) {
    const auto found = find(saved, name);
    if (!found || other)
      throw InputError(format("the checkpoint's optimizer state is not {}'s", kind.name),
                       "optimizer.param_groups", "use the optimizer that wrote it");
    if (auto* const* number = std::get_if<double*>(&value)) **number = as_double(*found, name);
    if (auto* const* flag = std::get_if<bool*>(&value)) **flag = as_bool(*found, name);
    if (auto* const* betas = std::get_if<Betas*>(&value)) {
      const auto pair = elements(*found);
      if (pair.size() != 2)
        throw InputError(format("\"betas\" in the checkpoint has {} values, not 2", pair.size()),
                         "optimizer.param_groups", kFreshOptimizer);
      **betas = {as_double(pair[0], name), as_double(pair[1], name)};
    }
  }
}

}  // namespace lockstep
