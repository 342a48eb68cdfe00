#include "lockstep/exported/nested.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/base/error.h"
#include "lockstep/exported/arithmetic.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using Tensors = torch::autograd::variable_list;
using Values = std::vector<IValue>;

// Sets autocast as a region of Python's does, and back.
class AutocastRegion {
 public:
  AutocastRegion(at::DeviceType device, bool enabled, const IValue& dtype, const IValue& cache)
      : device_(device),
        enabled_(at::autocast::is_autocast_enabled(device)),
        cache_(at::autocast::is_autocast_cache_enabled()),
        dtype_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(device, enabled);
    if (dtype.isInt()) at::autocast::set_autocast_dtype(device, static_cast<at::ScalarType>(dtype.toInt()));
    if (cache.isBool()) at::autocast::set_autocast_cache_enabled(cache.toBool());
  }
  ~AutocastRegion() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_);
    at::autocast::set_autocast_cache_enabled(cache_);
  }
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_, cache_;
  at::ScalarType dtype_;
};

// A branch of torch.cond with a graph of its own, as Python's operator has it: the whole of it is one node.
struct Branch : torch::autograd::Function<Branch> {
  static Tensors forward(torch::autograd::AutogradContext* context, const Graph* graph, const GraphMode* way,
                         const Values* operands, at::TensorList tensors) {
    Values inside = *operands;
    Tensors kept;
    for (auto& value : inside) {
      if (!value.isTensor()) continue;
      const auto& tensor = tensors[kept.size()];
      kept.push_back(tensor.detach().requires_grad_(tensor.requires_grad()));
      value = kept.back();
    }
    context->saved_data["leaves"] = static_cast<int64_t>(kept.size());
    const at::AutoGradMode with_gradients(true);
    Tensors results;
    for (auto& value : run(*graph, std::move(inside), *way)) {
      kept.push_back(value.toTensor());
      results.push_back(kept.back().detach());
    }
    context->saved_data["kept"] = c10::List<at::Tensor>(kept);
    return results;
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const auto kept = context->saved_data["kept"].toTensorVector();
    const auto leaves = static_cast<size_t>(context->saved_data["leaves"].toInt());
    Tensors wanted, outputs, given;
    for (size_t i = 0; i < leaves; ++i)
      if (kept[i].requires_grad()) wanted.push_back(kept[i]);
    for (size_t i = leaves; i < kept.size(); ++i) {
      if (!kept[i].requires_grad() || !gradients[i - leaves].defined()) continue;
      outputs.push_back(kept[i]);
      given.push_back(gradients[i - leaves]);
    }
    auto found = torch::autograd::grad(outputs, wanted, given, {}, false, /*allow_unused=*/true);
    constexpr size_t kBefore = 3;  // forward's arguments that are no tensors
    Tensors all(kBefore);
    auto next = found.begin();
    for (size_t i = 0; i < leaves; ++i) {
      if (!kept[i].requires_grad())
        all.emplace_back();
      else
        all.push_back(next->defined() ? *next : at::zeros_like(kept[i])), ++next;
    }
    return all;
  }
};

bool is_true(const IValue& value) {
  return value.isTensor() ? value.toTensor().item<bool>() : integer_of(value) != 0;
}

Values behind(const Values& values, size_t first) {
  if (values.size() < first) throw Error("a node of the exported graph lacks arguments");
  return {values.begin() + static_cast<std::ptrdiff_t>(first), values.end()};
}

Values without_lists(const Values& values) {
  Values flat;
  for (const auto& value : values) {
    if (!value.isList()) {
      flat.push_back(value);
      continue;
    }
    for (const IValue& item : value.toListRef()) flat.push_back(item);
  }
  return flat;
}

}  // namespace

Values run_branch(const Graph& branch, Values operands, const GraphMode& way) {
  Tensors tensors;
  bool learns = false;
  for (const auto& value : operands) {
    if (!value.isTensor()) continue;
    tensors.push_back(value.toTensor());
    learns |= tensors.back().requires_grad();
  }
  if (!learns || !at::GradMode::is_enabled()) return run(branch, std::move(operands), way);
  Values results;
  for (auto& tensor : Branch::apply(&branch, &way, &operands, at::TensorList(tensors)))
    results.emplace_back(std::move(tensor));
  return results;
}

Values run_nested(const Node& node, Values arguments, const GraphMode& way) {
  const auto values = without_lists(arguments);
  switch (node.kind) {
    case Node::Kind::branch: {
      const auto operands = behind(values, 1);
      return run_branch(*node.graphs[is_true(values[0]) ? 0 : 1], operands, way);
    }
    case Node::Kind::set_grad: {
      const auto operands = behind(values, 1);
      const at::AutoGradMode mode(is_true(values[0]));
      return run(*node.graphs[0], operands, way);
    }
    case Node::Kind::autocast: {
      const auto operands = behind(values, 4);
      if (!values[0].isString()) throw Error("autocast in the exported graph names no device");
      // the device that the graph was exported on is the one it is on; a region of another one concerns none
      // here
      const auto named = at::Device(values[0].toStringRef()).type();
      const AutocastRegion region(named == way.home ? way.device.type() : named, is_true(values[2]),
                                  values[1], values[3]);
      return run(*node.graphs[0], operands, way);
    }
    default:
      return run(*node.graphs[0], values, way);
  }
}

}  // namespace lockstep::exported
