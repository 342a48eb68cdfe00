#include "trainer/modes/split_parameters.h"

#include <torch/types.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/parallel/tensor_layers.h"

namespace lockstep::train {
namespace {

template <class Key>
std::optional<int64_t> found(const std::map<Key, int64_t>& dims, const Key& key) {
  const auto it = dims.find(key);
  return it == dims.end() ? std::nullopt : std::optional<int64_t>(it->second);
}

using Change = std::function<at::Tensor(const at::Tensor& tensor, int64_t dim)>;

Tree changed(const SplitParameters& split, const Tree& state, const Change& change) {
  auto dict = make_dict();
  for (const auto& [name, value] : items(state)) {
    const auto dim = split.dim_of(as_string(name, "a tensor's name"));
    put(dict, name, dim ? Tree(change(value.toTensor(), *dim)) : value);
  }
  return dict;
}

// What a parameter's state holds for each of its numbers is split as the parameter is; one number, such as
// Adam's step, is for all of it.
Tree changed_state(const Tree& state, int64_t dim, at::IntArrayRef shape, const Change& change) {
  auto dict = make_dict();
  for (const auto& [key, value] : items(state)) {
    const bool single = !value.isTensor() || value.toTensor().dim() == 0;
    if (!single && value.toTensor().sizes() != shape) {
      throw InputError(format("the optimiser's {} is not of its parameter's shape", as_string(key, "state")),
                       "parallel.tensor, optim.name",
                       "a layer's ranks cannot share it out: take another optimiser, or parallel.tensor 1");
    }
    put(dict, key, single ? value : Tree(change(value.toTensor(), dim)));
  }
  return dict;
}

using ShapeOf = std::function<std::vector<int64_t>(const at::Tensor& parameter, int64_t dim)>;

Tree changed_optimizer(const SplitParameters& split, const std::vector<at::Tensor>& parameters,
                       const Tree& optimizer, const ShapeOf& shape_of, const Change& change) {
  auto states = make_dict();
  for (const auto& [index, state] : items(get(optimizer, "state"))) {
    const auto number = static_cast<size_t>(as_int(index, "state"));
    const auto dim = number < parameters.size() ? split.dim_of(parameters[number]) : std::nullopt;
    put(states, index,
        dim && state.isGenericDict() ? changed_state(state, *dim, shape_of(parameters[number], *dim), change)
                                     : state);
  }
  auto dict = make_dict();
  for (const auto& [key, value] : items(optimizer))
    put(dict, key, as_string(key, "optimizer") == "state" ? states : value);
  return dict;
}

}  // namespace

SplitParameters::SplitParameters(const Net& net, Team team) : team_(std::move(team)) {
  for (const auto& module : net.named_modules("", /*include_self=*/false)) {
    const auto* layer = dynamic_cast<const SplitLayer*>(module.value().get());
    if (!layer) continue;
    for (const auto& item : module.value()->named_parameters(/*recurse=*/false)) {
      const int64_t dim = layer->split_of(item.key());
      if (dim < 0) continue;
      dims_.emplace(module.key() + "." + item.key(), dim);
      dims_of_.emplace(item.value().unsafeGetTensorImpl(), dim);
    }
  }
}

std::optional<int64_t> SplitParameters::dim_of(const std::string& name) const {
  return found(dims_, name);
}

std::optional<int64_t> SplitParameters::dim_of(const at::Tensor& parameter) const {
  return found(dims_of_, static_cast<const void*>(parameter.unsafeGetTensorImpl()));
}

at::Tensor SplitParameters::whole(const at::Tensor& own, int64_t dim) const {
  return at::cat(team_.all_gather(own.detach()), dim);
}

at::Tensor SplitParameters::own(const at::Tensor& whole, int64_t dim) const {
  const int64_t size = whole.size(dim) / team_.world();
  return whole.narrow(dim, team_.rank() * size, size);
}

std::vector<int64_t> SplitParameters::whole_shape(const at::Tensor& own, int64_t dim) const {
  auto shape = own.sizes().vec();
  shape[static_cast<size_t>(dim)] *= team_.world();
  return shape;
}

Tree whole_state_dict(const SplitParameters& split, const Tree& own) {
  return changed(split, own, [&](const auto& tensor, int64_t dim) { return split.whole(tensor, dim); });
}

Tree own_state_dict(const SplitParameters& split, const Tree& whole) {
  return changed(split, whole, [&](const auto& tensor, int64_t dim) { return split.own(tensor, dim); });
}

Tree whole_outline(const SplitParameters& split, const Tree& own) {
  return changed(split, own, [&](const auto& tensor, int64_t dim) {
    return at::empty(split.whole_shape(tensor, dim), tensor.options().device(at::kMeta));
  });
}

Tree whole_optimizer_state(const SplitParameters& split, const std::vector<at::Tensor>& parameters,
                           const Tree& own) {
  return changed_optimizer(
      split, parameters, own, [](const auto& parameter, int64_t) { return parameter.sizes().vec(); },
      [&](const auto& tensor, int64_t dim) { return split.whole(tensor, dim); });
}

Tree own_optimizer_state(const SplitParameters& split, const std::vector<at::Tensor>& parameters,
                         const Tree& whole) {
  return changed_optimizer(
      split, parameters, whole,
      [&](const auto& parameter, int64_t dim) { return split.whole_shape(parameter, dim); },
      [&](const auto& tensor, int64_t dim) { return split.own(tensor, dim).clone(); });
}

}  // namespace lockstep::train
