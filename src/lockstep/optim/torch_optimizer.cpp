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

using Betas = std::tuple<double, double>;

// A value of theirs under Python's name.
struct TorchField {
  const char* name;
  std::variant<double*, bool*, int64_t*, at::Tensor*, Betas*> value;
};
using TorchFields = std::vector<TorchField>;

// What differs between their classes.
struct TorchKind {
  const char* name;
  std::optional<bool> decoupled_weight_decay;  // Python tells Adam from AdamW by it
  bool (*is)(const torch::optim::OptimizerOptions&);
  TorchFields (*options)(torch::optim::OptimizerOptions&);
  TorchFields (*state)(torch::optim::OptimizerParamState&);
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();
  int moments;                      // tensors of a parameter's size in its state, at most
  std::vector<const char*> needed;  // in a state
  bool has_state_at_once = false;   // made with the optimiser, which cannot do without
};

template <class Options>
TorchFields adam_options(torch::optim::OptimizerOptions& options) {
  auto& of = dynamic_cast<Options&>(options);
  return {{"betas", &of.betas()},
          {"eps", &of.eps()},
          {"weight_decay", &of.weight_decay()},
          {"amsgrad", &of.amsgrad()}};
}

template <class State>
TorchFields adam_state(torch::optim::OptimizerParamState& state) {
  auto& of = dynamic_cast<State&>(state);
  return {{"step", &of.step()},
          {"exp_avg", &of.exp_avg()},
          {"exp_avg_sq", &of.exp_avg_sq()},
          {"max_exp_avg_sq", &of.max_exp_avg_sq()}};
}

TorchFields sgd_options(torch::optim::OptimizerOptions& options) {
  auto& of = dynamic_cast<torch::optim::SGDOptions&>(options);
  return {{"momentum", &of.momentum()},
          {"dampening", &of.dampening()},
          {"weight_decay", &of.weight_decay()},
          {"nesterov", &of.nesterov()}};
}

TorchFields sgd_state(torch::optim::OptimizerParamState& state) {
  return {{"momentum_buffer", &dynamic_cast<torch::optim::SGDParamState&>(state).momentum_buffer()}};
}

TorchFields rmsprop_options(torch::optim::OptimizerOptions& options) {
  auto& of = dynamic_cast<torch::optim::RMSpropOptions&>(options);
  return {{"alpha", &of.alpha()},
          {"eps", &of.eps()},
          {"weight_decay", &of.weight_decay()},
          {"momentum", &of.momentum()},
          {"centered", &of.centered()}};
}

TorchFields rmsprop_state(torch::optim::OptimizerParamState& state) {
  auto& of = dynamic_cast<torch::optim::RMSpropParamState&>(state);
  return {{"step", &of.step()},
          {"square_avg", &of.square_avg()},
          {"momentum_buffer", &of.momentum_buffer()},
          {"grad_avg", &of.grad_avg()}};
}

TorchFields adagrad_options(torch::optim::OptimizerOptions& options) {
  auto& of = dynamic_cast<torch::optim::AdagradOptions&>(options);
  return {{"lr_decay", &of.lr_decay()},
          {"weight_decay", &of.weight_decay()},
          {"initial_accumulator_value", &of.initial_accumulator_value()},
          {"eps", &of.eps()}};
}

TorchFields adagrad_state(torch::optim::OptimizerParamState& state) {
  auto& of = dynamic_cast<torch::optim::AdagradParamState&>(state);
  return {{"step", &of.step()}, {"sum", &of.sum()}};
}

template <class Options, class State>
TorchKind kind(const char* name, std::optional<bool> decoupled,
               TorchFields (*options)(torch::optim::OptimizerOptions&),
               TorchFields (*state)(torch::optim::OptimizerParamState&), int moments,
               std::vector<const char*> needed, bool at_once = false) {
  return {.name = name,
          .decoupled_weight_decay = decoupled,
          .is =
              [](const torch::optim::OptimizerOptions& it) {
                return dynamic_cast<const Options*>(&it) != nullptr;
              },
          .options = options,
          .state = state,
          .make_state = []() -> std::unique_ptr<torch::optim::OptimizerParamState> {
            return std::make_unique<State>();
          },
          .moments = moments,
          .needed = std::move(needed),
          .has_state_at_once = at_once};
}

const std::vector<TorchKind>& kinds() {
  using namespace torch::optim;
  using AdamOptions = torch::optim::AdamOptions;
  using AdamWOptions = torch::optim::AdamWOptions;
  using SGDOptions = torch::optim::SGDOptions;
  static const std::vector<TorchKind> all = {
      kind<SGDOptions, SGDParamState>("SGD", std::nullopt, sgd_options, sgd_state, 1, {"momentum_buffer"}),
      kind<AdamOptions, AdamParamState>("Adam", false, adam_options<AdamOptions>, adam_state<AdamParamState>,
                                        3, {"exp_avg", "exp_avg_sq"}),
      kind<AdamWOptions, AdamWParamState>("AdamW", true, adam_options<AdamWOptions>,
                                          adam_state<AdamWParamState>, 3, {"exp_avg", "exp_avg_sq"}),
      kind<RMSpropOptions, RMSpropParamState>("RMSprop", std::nullopt, rmsprop_options, rmsprop_state, 3,
                                              {"square_avg"}),
      kind<AdagradOptions, AdagradParamState>("Adagrad", std::nullopt, adagrad_options, adagrad_state, 1,
                                              {"sum"}, true),
  };
  return all;
}

const TorchKind& kind_of(const torch::optim::OptimizerOptions& options) {
  const auto found = std::ranges::find_if(kinds(), [&](const TorchKind& kind) { return kind.is(options); });
  if (found != kinds().end()) return *found;
  throw InputError("this optimiser of torch::optim is none of SGD, Adam, AdamW, RMSprop and Adagrad",
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

TorchFields fields_of_group(torch::optim::Optimizer& optimizer, size_t group) {
  auto& options = optimizer.param_groups().at(group).options();
  return kind_of(options).options(options);
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
  for (const auto& group : optimizer_.param_groups()) kind_of(group.options());
}

void TorchOptimizer::step() {
  if (optimizer_.param_groups().size() != group_count())
    throw Error("the optimiser got a parameter group after it was wrapped", "TorchOptimizer",
                "add all groups first, and make the TorchOptimizer then");
  refuse_local_gradients();
  optimizer_.step();
}

void TorchOptimizer::update(const std::vector<Slot>&, size_t) {
  throw Error("a rank can step no part of this optimiser", "TorchOptimizer",
              "share lockstep's own optimisers among the ranks");
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
    throw InputError("this optimiser has no momentum to cycle", "TorchOptimizer",
                     "set schedule.cycle_momentum: false");
  }
}

int64_t TorchOptimizer::state_bytes(size_t index) const {
  const auto& options = optimizer_.param_groups().at(group_of(index)).options();
  return kind_of(options).moments * static_cast<int64_t>(parameters()[index].nbytes());
}

Tree TorchOptimizer::state_of(size_t index) const {
  auto& states = optimizer_.state();
  const auto found = states.find(parameters()[index].unsafeGetTensorImpl());
  if (found == states.end()) return {};
  auto dict = make_dict();
  const auto& kind = kind_of(optimizer_.param_groups().at(group_of(index)).options());
  for (const auto& field : kind.state(*found->second)) {
    const auto value = std::visit(TreeOf(), field.value);
    if (!value.isNone()) put(dict, field.name, value);
  }
  return dict;
}

void TorchOptimizer::set_state_of(size_t index, const Tree& state) {
  void* const key = parameters()[index].unsafeGetTensorImpl();
  const auto& kind = kind_of(optimizer_.param_groups().at(group_of(index)).options());
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
            format("the checkpoint's optimiser state of parameter {} has no \"{}\"", index, name),
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
  const auto& decoupled = kind_of(optimizer_.param_groups().at(group).options()).decoupled_weight_decay;
  if (decoupled) options.emplace_back("decoupled_weight_decay", *decoupled);
  return options;
}

void TorchOptimizer::set_options_of(size_t group, const Tree& saved) {
  const auto& kind = kind_of(optimizer_.param_groups().at(group).options());
  const auto decoupled = find(saved, "decoupled_weight_decay");
  const bool other = decoupled && kind.decoupled_weight_decay &&
                     as_bool(*decoupled, "decoupled_weight_decay") != *kind.decoupled_weight_decay;
  for (const auto& [name, value] : fields_of_group(optimizer_, group)) {
    const auto found = find(saved, name);
    if (!found || other)
      throw InputError(format("the checkpoint's optimiser state is not {}'s", kind.name),
                       "optimizer.param_groups", "make the optimiser that wrote it");
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
