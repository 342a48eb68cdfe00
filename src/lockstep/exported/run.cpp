// Runs a graph, node by node.
#include "lockstep/exported/graph.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/stack.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/memory.h"

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
  AutocastRegion(AutocastRegion&&) = delete;

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
  if (values.size() < first) throw Error("a node of the exported graph has too few arguments");
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

// torch.cond under autograd: what the taken branch does not use gets a gradient of zeros, as in Python.
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

// Of a node that holds graphs; lists among its arguments are taken apart.
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
      // the device that the graph was exported on is the one it is on; other regions concern none
      const auto named = at::Device(values[0].toStringRef()).type();
      const AutocastRegion region(named == way.home ? way.device.type() : named, is_true(values[2]),
                                  values[1], values[3]);
      return run(*node.graphs[0], operands, way);
    }
    default:
      return run(*node.graphs[0], values, way);
  }
}

using Slots = Values;

IValue cast(const IValue& value, Cast cast) {
  switch (cast) {
    case Cast::none:
      return value;
    case Cast::to_real:
      return value.isDouble() ? value : IValue(static_cast<double>(integer_of(value)));
    case Cast::to_tensor:
      return value.isTensor() ? value : IValue(wrapped_number(value));
  }
  return value;
}

IValue evaluate(const Argument& argument, const Slots& slots, const GraphMode& way);

IValue evaluate_list(const Argument& argument, const Slots& slots, const GraphMode& way) {
  switch (argument.element->kind()) {
    case c10::TypeKind::IntType: {
      std::vector<int64_t> values;
      values.reserve(argument.items.size());
      for (const auto& item : argument.items) values.push_back(integer_of(evaluate(item, slots, way)));
      return values;
    }
    case c10::TypeKind::TensorType: {
      c10::List<at::Tensor> values;
      values.reserve(argument.items.size());
      for (const auto& item : argument.items) values.push_back(evaluate(item, slots, way).toTensor());
      return values;
    }
    case c10::TypeKind::OptionalType: {
      c10::List<std::optional<at::Tensor>> values;
      for (const auto& item : argument.items) {
        auto value = evaluate(item, slots, way);
        values.push_back(value.isTensor() ? std::optional(value.toTensor()) : std::nullopt);
      }
      return values;
    }
    default: {
      c10::impl::GenericList values(argument.element);
      for (const auto& item : argument.items) values.push_back(evaluate(item, slots, way));
      return values;
    }
  }
}

IValue evaluate(const Argument& argument, const Slots& slots, const GraphMode& way) {
  switch (argument.kind) {
    case Argument::Kind::constant:
      return argument.value;
    case Argument::Kind::slot:
      return cast(slots[static_cast<size_t>(argument.slot)], argument.cast);
    case Argument::Kind::list:
      return evaluate_list(argument, slots, way);
    case Argument::Kind::device:
      return way.device;
  }
  return {};
}

void keep(const Node& node, std::vector<IValue>& results, Slots& slots) {
  if (results.size() < node.outputs.size())
    throw Error(format("{} returned {} results, but the graph expects {}", node.target, results.size(),
                       node.outputs.size()));
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] >= 0) slots[static_cast<size_t>(node.outputs[i])] = std::move(results[i]);
}

void call(const Node& node, Slots& slots, const GraphMode& way, torch::jit::Stack& stack) {
  stack.clear();
  for (const auto& argument : node.arguments) stack.push_back(evaluate(argument, slots, way));
  if (way.eval)
    for (const auto& [number, value] : node.eval_arguments) stack[number] = value;
  if (node.check) node.check(stack);
  node.op->callBoxed(stack);
  if (!node.gives_list) return keep(node, stack, slots);
  auto results = stack.at(0).toListRef().vec();
  keep(node, results, slots);
}

// Under autocast a tensor has another dtype than when the model was exported; Python has no such check.
bool is_skipped(const Node& node, const GraphMode& way) {
  static const c10::OperatorName check("aten::_assert_tensor_metadata", "");
  return node.op->operator_name() == check && at::autocast::is_autocast_enabled(way.device.type());
}

void run_node(const Node& node, Slots& slots, const GraphMode& way, torch::jit::Stack& stack) {
  if (node.kind == Node::Kind::op) {
    if (way.eval && node.only_in_training)
      slots[static_cast<size_t>(node.outputs.at(0))] = evaluate(node.arguments.at(0), slots, way);
    else if (!is_skipped(node, way))
      call(node, slots, way, stack);
    return;
  }
  std::vector<IValue> values;
  for (const auto& argument : node.arguments) values.push_back(evaluate(argument, slots, way));
  if (node.kind == Node::Kind::arithmetic) {
    slots[static_cast<size_t>(node.outputs[0])] = node.arithmetic(values);
    return;
  }
  auto results = run_nested(node, std::move(values), way);
  keep(node, results, slots);
}

// Where in the user's model it went wrong: of libtorch's pages the line that says what.
[[noreturn]] void rethrow(const std::exception& error, const Node& node) {
  const std::string text = error.what();
  throw Error(format("{} ({}{}{})", text.substr(0, text.find('\n')), node.target,
                     node.place.empty() ? "" : " at ", node.place),
              "the exported model", "the model was exported for other shapes or dtypes than it got");
}

}  // namespace

std::vector<IValue> run(const Graph& graph, std::vector<IValue> inputs, const GraphMode& way) {
  if (inputs.size() != graph.inputs.size())
    throw Error(format("a graph with {} inputs got {}", graph.inputs.size(), inputs.size()));
  Slots slots(graph.slots.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (graph.inputs[i] >= 0) slots[static_cast<size_t>(graph.inputs[i])] = std::move(inputs[i]);
  torch::jit::Stack stack;
  for (const auto& node : graph.nodes) {
    try {
      run_node(node, slots, way, stack);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      if (base::is_out_of_memory(error)) throw;
      rethrow(error, node);
    }
    for (const int slot : node.done) slots[static_cast<size_t>(slot)] = IValue();
  }
  std::vector<IValue> outputs;
  for (const auto& output : graph.outputs) outputs.push_back(evaluate(output, slots, way));
  return outputs;
}

}  // namespace lockstep::exported
