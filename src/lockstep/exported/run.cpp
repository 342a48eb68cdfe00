#include "lockstep/exported/run.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/stack.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/memory.h"
#include "lockstep/exported/arithmetic.h"
#include "lockstep/exported/nested.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using Slots = std::vector<IValue>;

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
    throw Error(format("{} gave {} results, and the graph takes {}", node.target, results.size(),
                       node.outputs.size()));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] >= 0) slots[static_cast<size_t>(node.outputs[i])] = std::move(results[i]);
  }
}

void call(const Node& node, Slots& slots, const GraphMode& way, torch::jit::Stack& stack) {
  stack.clear();
  for (const auto& argument : node.arguments) stack.push_back(evaluate(argument, slots, way));
  if (way.eval) {
    for (const auto& [number, value] : node.eval_arguments) stack[number] = value;
  }
  if (node.check) node.check(stack);
  node.op->callBoxed(stack);
  if (!node.gives_list) return keep(node, stack, slots);
  auto results = stack.at(0).toListRef().vec();
  keep(node, results, slots);
}

// Under autocast a tensor has another dtype than when the model was exported; Python's own module has no such
// check.
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
    throw Error(format("a graph of {} inputs got {}", graph.inputs.size(), inputs.size()));
  Slots slots(graph.slots.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph.inputs[i] >= 0) slots[static_cast<size_t>(graph.inputs[i])] = std::move(inputs[i]);
  }
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
