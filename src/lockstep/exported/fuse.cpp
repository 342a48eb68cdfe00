// Neighbors in a graph become one node where a kernel of our own computes both.
#include "lockstep/exported/graph.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <string_view>

#include "lockstep/kernels/linear_relu.h"
#include "lockstep/kernels/pool_relu.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using Values = std::vector<IValue>;

IValue run_pool_relu(const Values& values) {
  return pool_relu(values.at(0).toTensor());
}
IValue run_linear_relu(const Values& values) {
  return linear_relu(values.at(0).toTensor(), values.at(1).toTensor(), values.at(2).toTensor());
}
IValue run_linear(const Values& values) {
  return linear_alone(values.at(0).toTensor(), values.at(1).toTensor(), values.at(2).toTensor());
}

bool is_slot(const Argument& argument) {
  return argument.kind == Argument::Kind::slot && argument.cast == Cast::none;
}

void count_reads(const Argument& argument, std::vector<int>& reads) {
  if (argument.kind == Argument::Kind::slot) ++reads[static_cast<size_t>(argument.slot)];
  for (const auto& item : argument.items) count_reads(item, reads);
}

std::vector<int> reads_of(const Graph& graph) {
  std::vector<int> reads(graph.slots.size(), 0);
  for (const auto& node : graph.nodes)
    for (const auto& argument : node.arguments) count_reads(argument, reads);
  for (const auto& output : graph.outputs) count_reads(output, reads);
  return reads;
}

// Whether the file has the number, [number, number] or an empty list there.
bool all_are(const Argument& argument, int64_t wanted) {
  if (argument.kind == Argument::Kind::list)
    return std::ranges::all_of(argument.items, [&](const Argument& item) { return all_are(item, wanted); });
  if (argument.kind != Argument::Kind::constant) return false;
  if (argument.value.isInt()) return argument.value.toInt() == wanted;
  return argument.value.isIntList() &&
         std::ranges::all_of(argument.value.toIntVector(), [&](int64_t number) { return number == wanted; });
}

bool calls(const Node& node, std::string_view name) {
  return node.kind == Node::Kind::op && node.target.ends_with(name);
}

bool is_relu(const Node& node) {
  return calls(node, "aten.relu.default") || calls(node, "aten.relu_.default");
}

// The result shares no memory with another tensor, so it may be changed in place.
bool makes_new_tensor(const Node& node) {
  return calls(node, "aten.linear.default") || calls(node, "aten.conv2d.default") ||
         calls(node, "aten.batch_norm.default");
}

// 2 x 2, side by side, without an edge: max_pool2d(self, kernel, stride, padding, dilation, ceil_mode).
bool is_pool_of_two(const Node& node) {
  if (!calls(node, "aten.max_pool2d.default") || node.arguments.size() != 6) return false;
  const auto& kernel = node.arguments[1];
  const auto& ceil = node.arguments[5].value;
  const bool is_two = all_are(kernel, 2) && !all_are(kernel, 0);  // which would both hold for an empty list
  return is_two && all_are(node.arguments[2], 2) && all_are(node.arguments[3], 0) &&
         all_are(node.arguments[4], 1) && ceil.isBool() && !ceil.toBool();
}

bool is_linear_with_bias(const Node& node) {
  return calls(node, "aten.linear.default") && node.arguments.size() == 3 &&
         std::all_of(node.arguments.begin(), node.arguments.end(), is_slot);
}

class Fuser {
 public:
  explicit Fuser(Graph& graph) : nodes_(graph.nodes), reads_(reads_of(graph)) {}

  void run() {
    std::vector<Node> kept;
    for (auto& node : nodes_) {
      before_ = kept.empty() ? nullptr : &kept.back();
      const bool both = join(node);
      if (both) kept.pop_back();
      kept.push_back(std::move(node));
    }
    for (auto& node : kept)
      if (is_linear_with_bias(node)) become(node, run_linear, std::move(node.arguments));
    nodes_ = std::move(kept);
  }

 private:
  bool join(Node& node) {
    if (!before_) return false;
    if (is_pool_of_two(node) && is_relu(*before_) && is_only_reader(node, *before_) &&
        may_change_late(*before_))
      return become(node, run_pool_relu, std::move(before_->arguments));
    if (is_relu(node) && is_linear_with_bias(*before_) && is_only_reader(node, *before_))
      return become(node, run_linear_relu, std::move(before_->arguments));
    return false;
  }

  bool is_only_reader(const Node& node, const Node& before) const {
    const auto& first = node.arguments.at(0);
    return before.outputs.size() == 1 && is_slot(first) && first.slot == before.outputs[0] &&
           reads_[static_cast<size_t>(first.slot)] == 1;
  }

  // relu_ changes what it reads, which then has to be nobody else's.
  bool may_change_late(const Node& relu) const {
    if (calls(relu, "aten.relu.default")) return is_slot(relu.arguments.at(0));
    const auto& input = relu.arguments.at(0);
    if (!is_slot(input) || reads_[static_cast<size_t>(input.slot)] != 1) return false;
    return is_fresh_[static_cast<size_t>(input.slot)];
  }

  static bool become(Node& node, Arithmetic run, std::vector<Argument> arguments) {
    node.kind = Node::Kind::arithmetic;
    node.arithmetic = run;
    node.op.reset();
    node.arguments = std::move(arguments);
    return true;
  }

  std::vector<Node>& nodes_;
  std::vector<int> reads_;
  std::vector<bool> is_fresh_ = find_fresh();
  Node* before_ = nullptr;

  std::vector<bool> find_fresh() const {
    std::vector<bool> made(reads_.size(), false);
    for (const auto& node : nodes_) {
      for (const int slot : node.outputs)
        if (slot >= 0) made[static_cast<size_t>(slot)] = makes_new_tensor(node);
    }
    return made;
  }
};

}  // namespace

void fuse(Graph& graph) {
  Fuser(graph).run();
}

}  // namespace lockstep::exported
