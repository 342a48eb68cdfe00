#include "lockstep/exported/compile.h"

#include <ATen/Context.h>

#include <functional>

#include "lockstep/base/format.h"
#include "lockstep/exported/argument.h"
#include "lockstep/exported/arithmetic.h"
#include "lockstep/exported/eval_mode.h"
#include "lockstep/exported/fuse.h"
#include "lockstep/exported/operators.h"

namespace lockstep::exported {
namespace {

constexpr size_t kMostNodes = 1'000'000;
constexpr int kMostNested = 8;
constexpr std::string_view kOperators = "torch.ops.", kHigherOrder = "torch.ops.higher_order.";

const std::map<std::string, Node::Kind>& higher_order() {
  static const std::map<std::string, Node::Kind> known = {
      {"cond", Node::Kind::branch},
      {"wrap_with_set_grad_enabled", Node::Kind::set_grad},
      {"wrap_with_autocast", Node::Kind::autocast},
      {"tag_activation_checkpoint", Node::Kind::nested},
      {"wrap", Node::Kind::nested},
  };
  return known;
}

class Compiler {
 public:
  Compiler(std::set<std::string> counters, GraphCalls& calls, int depth)
      : counters_(std::move(counters)), calls_(calls), depth_(depth) {}

  Graph run(const Json& json) {
    for (const auto& input : json.at("inputs")) graph_.inputs.push_back(add_input(input));
    const auto& nodes = json.at("nodes");
    if (!nodes.is_array() || nodes.size() > kMostNodes)
      throw Refusal(format("the graph has no list of nodes, or more than {}", kMostNodes));
    for (const auto& node : nodes) graph_.nodes.push_back(add_node(node));
    for (const auto& output : json.at("outputs")) graph_.outputs.push_back(read_argument(output, names_));
    fuse(graph_);
    free_early();
    return std::move(graph_);
  }

 private:
  int add_input(const Json& json) {
    const auto [kind, value] = only_field(json);
    if (kind == "as_tensor") return names_.add(text_at(value, "name"), Holds::tensor);
    if (is_symbol(kind)) return names_.add(text_at(value, "as_name"), held_by(kind));
    if (kind == "as_custom_obj") throw Refusal("the graph takes a TorchBind object");
    return -1;
  }

  Node add_node(const Json& json) {
    Node node;
    node.target = text_at(json, "target");
    node.place = place_of(json);
    try {
      if (node.target.starts_with(kHigherOrder))
        add_higher_order(node, json);
      else if (node.target.starts_with(kOperators))
        add_operator(node, json);
      else
        add_arithmetic(node, json);
    } catch (const Refusal& refusal) {
      throw Refusal(format("{} (the node {}{}{})", refusal.what(), shown(node.target),
                           node.place.empty() ? "" : ", ", node.place),
                    refusal.hint);
    }
    return node;
  }

  void add_operator(Node& node, const Json& json) {
    node.op = find_operator(node.target);
    node.check = find_check(c10::toString(node.op->operator_name()));
    const auto& schema = node.op->schema();
    std::map<std::string, const Json*> given;
    for (const auto& input : json.at("inputs"))
      given.insert_or_assign(text_at(input, "name"), &input.at("arg"));
    for (const auto& wanted : schema.arguments()) {
      const auto found = given.extract(wanted.name());
      node.arguments.push_back(add_argument(wanted, found.empty() ? nullptr : found.mapped()));
    }
    if (!given.empty()) throw Refusal("it takes no argument " + shown(given.begin()->first));
    add_outputs(node, json.at("outputs"));
    const auto results = schema.returns().size();
    if (node.gives_list ? results != 1 : node.outputs.size() > results)
      throw Refusal("it does not give what the graph takes from it");
    count(node, json);
  }

  Argument add_argument(const c10::Argument& wanted, const Json* json) {
    // torch.export writes false for whatever it met; what holds is where the graph runs
    if (wanted.name() == "cudnn_enabled") return {.value = at::globalContext().userEnabledCuDNN()};
    if (!json) {
      if (wanted.default_value()) return {.value = *wanted.default_value()};
      throw Refusal("it lacks the argument " + wanted.name());
    }
    auto argument = read_argument(*json, wanted, names_);
    const bool is_true = argument.value.isBool() && argument.value.toBool();
    if (wanted.name() == "sparse" && is_true)
      throw Refusal("its gradient would be sparse", "make the layer with sparse=False");
    if (wanted.alias_info() && wanted.alias_info()->isWrite() && argument.kind == Argument::Kind::slot)
      calls_.changed.insert(only_field(*json).value.value("name", std::string()));
    return argument;
  }

  void count(Node& node, const Json& json) {
    const auto& name = node.op->schema().name();
    ++calls_.operators[name];
    if (always_draws(name)) calls_.draws.insert(name);
    const bool counts = counts_batches(node, json);
    if (counts) counters_.insert(text_at(only_field(json.at("outputs").at(0)).value, "name"));
    const auto flags = set_eval_mode(node, counts);
    calls_.on += flags.on;
    calls_.off += flags.off;
  }

  bool counts_batches(const Node& node, const Json& json) const {
    if (node.op->schema().name() != "aten::add_" || node.outputs.size() != 1 || node.outputs[0] < 0)
      return false;
    const auto [kind, value] = only_field(json.at("inputs").at(0).at("arg"));
    return kind == "as_tensor" && counters_.contains(text_at(value, "name"));
  }

  void add_arithmetic(Node& node, const Json& json) {
    const auto* found = find_arithmetic(node.target);
    if (!found) {
      throw Refusal("a Python function that lockstep does not know",
                    "write that part of the model with operators of torch");
    }
    node.kind = Node::Kind::arithmetic;
    node.arithmetic = found->run;
    for (const auto& input : json.at("inputs"))
      node.arguments.push_back(read_argument(input.at("arg"), names_));
    if (node.arguments.size() != found->arguments)
      throw Refusal(format("it takes {} arguments", found->arguments));
    add_outputs(node, json.at("outputs"));
    if (node.outputs.size() != 1 || node.outputs[0] < 0) throw Refusal("it gives one number");
  }

  void add_higher_order(Node& node, const Json& json) {
    const auto name = node.target.substr(kHigherOrder.size());
    const auto found = higher_order().find(name);
    if (found == higher_order().end()) {
      throw Refusal("a higher-order operator that lockstep does not run",
                    "write that part of the model without it");
    }
    node.kind = found->second;
    const auto operands = operands_of(json);
    constexpr int kKeyword = 2;  // torch.utils.checkpoint's own arguments
    for (const auto& input : json.at("inputs")) {
      const auto kind = input.find("kind");
      if (node.kind == Node::Kind::nested && kind != input.end() && *kind == kKeyword) continue;
      const auto& argument = input.at("arg");
      const auto field = only_field(argument);
      if (field.name == "as_graph")
        add_graph(node, field.value.at("graph"), operands);
      else
        node.arguments.push_back(read_argument(argument, names_));
    }
    add_outputs(node, json.at("outputs"));
    node.gives_list = false;  // a list of results is a result each
    if (const size_t wanted = node.kind == Node::Kind::branch ? 2 : 1; node.graphs.size() != wanted)
      throw Refusal(format("it takes {} graphs", wanted));
  }

  /// What a nested graph gets, by name and in order: all tensors behind the graphs.
  static std::vector<std::string> operands_of(const Json& json) {
    std::vector<std::string> names;
    bool is_behind = false;
    for (const auto& input : json.at("inputs")) {
      const auto field = only_field(input.at("arg"));
      is_behind |= field.name == "as_graph";
      if (!is_behind) continue;
      if (field.name == "as_tensor") names.push_back(text_at(field.value, "name"));
      if (field.name == "as_tensors")
        for (const auto& tensor : field.value) names.push_back(text_at(tensor, "name"));
    }
    return names;
  }

  void add_graph(Node& node, const Json& json, const std::vector<std::string>& operands) {
    if (depth_ == kMostNested) throw Refusal("its graphs are nested too deeply");
    std::set<std::string> inner;  // the counters, as the inner graph calls them
    size_t next = 0;
    for (const auto& input : json.at("inputs")) {
      const auto field = only_field(input);
      if (field.name != "as_tensor") continue;
      if (next < operands.size() && counters_.contains(operands[next]))
        inner.insert(text_at(field.value, "name"));
      ++next;
    }
    node.graphs.push_back(std::make_unique<Graph>(Compiler(std::move(inner), calls_, depth_ + 1).run(json)));
  }

  void add_outputs(Node& node, const Json& json) {
    for (const auto& output : json) {
      const auto [kind, value] = only_field(output);
      if (kind == "as_tensor") {
        node.outputs.push_back(names_.add(text_at(value, "name"), Holds::tensor));
      } else if (kind == "as_tensors") {
        node.gives_list = true;
        for (const auto& tensor : value)
          node.outputs.push_back(names_.add(text_at(tensor, "name"), Holds::tensor));
      } else if (is_symbol(kind)) {
        node.outputs.push_back(names_.add(only_field(value).value.get<std::string>(), held_by(kind)));
      } else if (kind == "as_none" || kind == "as_int" || kind == "as_bool" || kind == "as_float") {
        node.outputs.push_back(-1);
      } else {
        throw Refusal("it gives something of the kind " + shown(kind));
      }
    }
    if (node.gives_list && json.size() != 1) throw Refusal("it gives a list and something else");
  }

  static bool is_symbol(const std::string& kind) {
    return kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool";
  }

  static Holds held_by(const std::string& kind) {
    return kind == "as_sym_int" ? Holds::integer : kind == "as_sym_float" ? Holds::real : Holds::truth;
  }

  /// A value goes after the last node that reads it; the graph's outputs stay.
  void free_early() {
    constexpr int kUnread = -1;
    std::vector<int> last(graph_.slots.size(), kUnread);
    const std::function<void(const Argument&, int)> read = [&](const Argument& argument, int node) {
      if (argument.kind == Argument::Kind::slot) last[static_cast<size_t>(argument.slot)] = node;
      for (const auto& item : argument.items) read(item, node);
    };
    const auto count = static_cast<int>(graph_.nodes.size());
    for (int i = 0; i < count; ++i) {
      const auto& node = graph_.nodes[static_cast<size_t>(i)];
      for (const auto& argument : node.arguments) read(argument, i);
      for (const int slot : node.outputs)
        if (slot >= 0) last[static_cast<size_t>(slot)] = i;
    }
    for (const auto& output : graph_.outputs) read(output, count);
    for (size_t slot = 0; slot < last.size(); ++slot) {
      if (last[slot] != kUnread && last[slot] < count)
        graph_.nodes[static_cast<size_t>(last[slot])].done.push_back(static_cast<int>(slot));
    }
  }

  Graph graph_;
  SlotNames names_{graph_};
  std::set<std::string> counters_;  // and what adding to them gives
  GraphCalls& calls_;
  int depth_;
};

}  // namespace

Graph compile(const Json& graph, const std::set<std::string>& counters, GraphCalls& calls) {
  return Compiler(counters, calls, 0).run(graph);
}

std::string place_of(const Json& node) {
  const auto metadata = node.find("metadata");
  if (metadata == node.end() || !metadata->is_object()) return {};
  const auto trace = metadata->find("stack_trace");
  if (trace == metadata->end() || !trace->is_string()) return {};
  const auto& text = trace->get_ref<const std::string&>();
  constexpr std::string_view begin = "File \"", line = "\", line ";
  const auto at = text.rfind(begin);
  if (at == std::string::npos) return {};
  const auto name_end = text.find(line, at);
  const auto number_end = text.find(',', name_end == std::string::npos ? name_end : name_end + line.size());
  if (name_end == std::string::npos || number_end == std::string::npos) return {};
  const auto slash = text.rfind('/', name_end);
  const auto name_begin = slash != std::string::npos && slash > at ? slash + 1 : at + begin.size();
  const auto number = text.substr(name_end + line.size(), number_end - name_end - line.size());
  return shown(text.substr(name_begin, name_end - name_begin) + ":" + number);
}

}  // namespace lockstep::exported
