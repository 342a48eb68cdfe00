// From the JSON of a graph to one that runs.
#include "lockstep/exported/graph.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <torch/version.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lockstep/base/format.h"
#include "lockstep/exported/archive.h"

namespace lockstep::exported {
namespace {

// An argument of the file, made ready and checked against what its operator takes.

using c10::IValue;
using c10::TypeKind;
using Kind = Argument::Kind;

/// The values of a graph by name.
class SlotNames {
 public:
  explicit SlotNames(Graph& graph) : graph_(graph) {}
  int add(const std::string& name, SlotType holds) {
    const auto number = static_cast<int>(graph_.slots.size());
    if (!slots_.emplace(name, number).second)
      throw Refusal(format("two values of the graph have the name {}", shown(name)));
    graph_.slots.push_back(holds);
    return number;
  }
  Argument find(const std::string& name) const {
    const auto found = slots_.find(name);
    if (found == slots_.end()) throw Refusal(format("the graph uses {} before it is computed", shown(name)));
    const auto number = found->second;
    return {.kind = Kind::slot, .slot = number, .holds = graph_.slots[static_cast<size_t>(number)]};
  }

 private:
  Graph& graph_;
  std::unordered_map<std::string, int> slots_;
};

Argument constant(IValue value) {
  return {.value = std::move(value)};
}

template <class Value, class Each>
Argument constants(const Json& json, Each each) {
  c10::List<Value> values;
  for (const auto& item : json) values.push_back(each(item));
  return constant(std::move(values));
}

Argument named(const Json& json, const SlotNames& names) {
  return names.find(text_at(json, "name"));
}

Argument symbol(const Json& json, const SlotNames& names) {
  const auto [kind, value] = only_field(json);
  if (kind == "as_name") return names.find(value.get<std::string>());
  if (kind == "as_int") return constant(whole_number(value));
  if (kind == "as_float") return constant(number_of(value));
  if (kind == "as_bool") return constant(value.get<bool>());
  throw Refusal("a size of the graph has the kind " + shown(kind));
}

Argument optional_tensor(const Json& json, const SlotNames& names) {
  const auto [kind, value] = only_field(json);
  return kind == "as_none" ? Argument() : named(value, names);
}

Argument device(const Json& json) {
  const auto found = device_of(json);
  return {.kind = found.type() == at::kMeta ? Kind::constant : Kind::device, .value = found};
}

Argument read_argument(const Json& json, const SlotNames& names) {
  const auto [kind, value] = only_field(json);
  const auto list = [&, &items = value](c10::TypePtr element, auto each) {
    Argument argument{.kind = Kind::list, .element = std::move(element)};
    for (const auto& item : items) argument.items.push_back(each(item, names));
    return argument;
  };
  if (kind == "as_none") return {};
  if (kind == "as_tensor") return named(value, names);
  if (kind == "as_optional_tensor") return optional_tensor(value, names);
  if (kind == "as_tensors") return list(c10::TensorType::get(), named);
  if (kind == "as_optional_tensors") return list(c10::OptionalType::ofTensor(), optional_tensor);
  if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") return symbol(value, names);
  if (kind == "as_sym_ints") return list(c10::IntType::get(), symbol);
  if (kind == "as_sym_floats") return list(c10::FloatType::get(), symbol);
  if (kind == "as_sym_bools") return list(c10::BoolType::get(), symbol);
  if (kind == "as_int") return constant(whole_number(value));
  if (kind == "as_float") return constant(number_of(value));
  if (kind == "as_bool") return constant(value.get<bool>());
  if (kind == "as_string") return constant(value.get<std::string>());
  if (kind == "as_complex")
    return constant(c10::complex<double>(number_of(value.at("real")), number_of(value.at("imag"))));
  if (kind == "as_scalar_type") return constant(static_cast<int64_t>(scalar_type_of(value)));
  if (kind == "as_memory_format") return constant(static_cast<int64_t>(memory_format_of(value)));
  if (kind == "as_layout") return constant(static_cast<int64_t>(layout_of(value)));
  if (kind == "as_device") return device(value);
  if (kind == "as_ints") return constants<int64_t>(value, whole_number);
  if (kind == "as_floats") return constants<double>(value, number_of);
  if (kind == "as_bools") return constants<bool>(value, [](const Json& item) { return item.get<bool>(); });
  if (kind == "as_strings")
    return constants<std::string>(value, [](const Json& item) { return item.get<std::string>(); });
  throw Refusal(format("an argument of the kind {} cannot be read", shown(kind)),
                "export the model without that, or with a torch version that this lockstep supports");
}

// Fits an argument to a type, or says that it does not.

bool is(const Argument& argument, bool (IValue::*is_kind)() const, SlotType wanted) {
  if (argument.kind == Kind::slot) return argument.holds == wanted;
  return argument.kind == Kind::constant && (argument.value.*is_kind)();
}

bool fit_tensor(Argument& argument) {
  if (argument.kind == Kind::slot) {
    if (argument.holds != SlotType::tensor) argument.cast = Cast::to_tensor;
    return true;
  }
  if (argument.kind != Kind::constant || !argument.value.isScalar()) return false;
  argument.value = wrapped_number(argument.value);
  return true;
}

bool fit_real(Argument& argument) {
  if (argument.kind == Kind::slot) {
    argument.cast = Cast::to_real;
    return argument.holds != SlotType::tensor;
  }
  if (argument.kind == Kind::constant && argument.value.isInt())
    argument.value = static_cast<double>(argument.value.toInt());
  return argument.kind == Kind::constant && argument.value.isDouble();
}

bool fit_constants(Argument& argument, const c10::TypePtr& element) {
  const auto values = argument.value.toListRef();
  if (values.empty()) {
    argument.value = c10::impl::GenericList(element);
    return true;
  }
  switch (element->kind()) {
    case TypeKind::IntType:
      return argument.value.isIntList();
    case TypeKind::BoolType:
      return argument.value.isBoolList();
    case TypeKind::FloatType:
      if (argument.value.isIntList()) {
        const auto whole = argument.value.toIntVector();
        argument.value = std::vector<double>(whole.begin(), whole.end());
      }
      return argument.value.isDoubleList();
    case TypeKind::StringType:
      return values.front().isString();
    case TypeKind::NumberType: {
      c10::impl::GenericList numbers(c10::NumberType::get());
      for (const auto& value : values) {
        if (!value.isScalar()) return false;
        numbers.push_back(value);
      }
      argument.value = numbers;
      return true;
    }
    default:
      return false;
  }
}

bool fit(Argument& argument, c10::TypePtr type, std::optional<int32_t> length);

bool fit_list(Argument& argument, const c10::ListType& type, std::optional<int32_t> length) {
  const auto& element = type.getElementType();
  if (argument.kind == Kind::constant && argument.value.isList()) return fit_constants(argument, element);
  if (argument.kind != Kind::list)
    argument = {.kind = Kind::list,
                .items = std::vector<Argument>(static_cast<size_t>(length.value_or(1)), argument)};
  argument.element = element;
  return std::ranges::all_of(argument.items, [&](Argument& item) { return fit(item, element, {}); });
}

bool fit(Argument& argument, c10::TypePtr type, std::optional<int32_t> length) {
  if (const auto optional = type->cast<c10::OptionalType>()) {
    if (argument.kind == Kind::constant && argument.value.isNone()) return true;
    type = optional->getElementType();
  }
  switch (type->kind()) {
    case TypeKind::TensorType:
      return fit_tensor(argument);
    case TypeKind::ListType:
      return fit_list(argument, type->expectRef<c10::ListType>(), length);
    case TypeKind::FloatType:
      return fit_real(argument);
    case TypeKind::DeviceObjType:
      return argument.kind == Kind::device || argument.value.isDevice();
    case TypeKind::IntType:
      return is(argument, &IValue::isInt, SlotType::integer);
    case TypeKind::BoolType:
      return is(argument, &IValue::isBool, SlotType::truth);
    case TypeKind::NumberType:
      return argument.kind == Kind::slot ? argument.holds != SlotType::tensor : argument.value.isScalar();
    case TypeKind::StringType:
      return argument.kind == Kind::constant && argument.value.isString();
    default:
      return false;
  }
}

// libtorch trusts the numbers of its enumerations, which the schema calls integers.
bool is_of_kind(const Json& json, c10::TypePtr type) {
  const auto& kind = only_field(json).name;
  if (const auto optional = type->cast<c10::OptionalType>()) {
    if (kind == "as_none") return true;
    type = optional->getElementType();
  }
  switch (type->kind()) {
    case TypeKind::ScalarTypeType:
      return kind == "as_scalar_type";
    case TypeKind::LayoutType:
      return kind == "as_layout";
    case TypeKind::MemoryFormatType:
      return kind == "as_memory_format";
    default:
      return true;
  }
}

// As the operator wants it: a number in a tensor's place becomes what Python makes of it, or a list.
Argument read_argument(const Json& json, const c10::Argument& wanted, const SlotNames& names) {
  auto argument = read_argument(json, names);
  if (is_of_kind(json, wanted.real_type()) && fit(argument, wanted.type(), wanted.N())) return argument;
  throw Refusal(format("its argument {} has the kind {}, but must be {}", wanted.name(),
                       shown(only_field(json).name), wanted.type()->str()));
}

// The operators of libtorch that an exported graph may call.

constexpr std::string_view kSpace = "torch.ops.aten.";

constexpr std::string_view kAllowed[] = {
#include "lockstep/exported/operators.inc"
};
static_assert(std::ranges::is_sorted(kAllowed));

constexpr std::string_view kDraws[] = {
    "bernoulli",   "bernoulli_",   "binomial",  "cauchy",     "cauchy_",
    "exponential", "exponential_", "geometric", "geometric_", "log_normal",
    "log_normal_", "multinomial",  "normal",    "normal_",    "normal_functional",
    "poisson",     "rand",         "rand_like", "randint",    "randint_like",
    "randn",       "randn_like",   "random",    "random_",    "randperm",
    "uniform",     "uniform_",
};
static_assert(std::ranges::is_sorted(kDraws));

[[noreturn]] void refuse_space(const std::string& target) {
  throw Refusal(format("the operator {} is not libtorch's own", shown(target)),
                "use only torch's operators: a custom operator needs the library that defines it");
}

/// By the name in the file, "torch.ops.aten.linear.default". Refusal for one that is not libtorch's, that
/// this libtorch lacks, that is not in the list (operators.inc), or that has an out=.
c10::OperatorHandle find_operator(const std::string& target) {
  if (!target.starts_with(kSpace)) refuse_space(target);
  const auto rest = target.substr(kSpace.size());
  const auto dot = rest.find('.');
  if (dot == std::string::npos) refuse_space(target);
  const std::string name = rest.substr(0, dot);
  auto overload = rest.substr(dot + 1);
  if (overload == "default") overload.clear();
  if (!std::ranges::binary_search(kAllowed, name))
    throw Refusal(format("the operator {} is not one that an exported model may call", shown(target)),
                  "export without run_decompositions(), and write that part with other operators of torch");
  const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + name, overload});
  if (!found)
    throw Refusal(format("this libtorch ({}) has no operator {}", TORCH_VERSION, shown(target)),
                  "export the model with a torch of this version, or use a lockstep with a newer libtorch");
  // Not all kernels expect a result that is one of the arguments. This one does, with its check: torch's
  // spectral_norm normalizes so.
  if (target != "torch.ops.aten.div.out" &&
      std::ranges::any_of(found->schema().arguments(), &c10::Argument::is_out))
    throw Refusal(format("the operator {} writes into a tensor that it is given", shown(target)),
                  "write that part of the model without out=");
  return *found;
}

/// Does it draw random numbers whatever mode the model is in?
bool always_draws(const std::string& name) {
  constexpr std::string_view space = "aten::";
  return name.starts_with(space) &&
         std::ranges::binary_search(kDraws, std::string_view(name).substr(space.size()));
}

/// Fills in what eval mode changes: dropout and norms, as torch.nn.Module.eval() changes them.
void set_eval_mode(Node& node, GraphCalls& calls) {
  const auto& schema = node.op->schema();
  const auto mean = schema.argumentIndexWithName("running_mean");
  if (mean && (schema.name() == "aten::batch_norm" || schema.name() == "aten::instance_norm")) {
    // without running statistics a norm takes the batch's own in eval mode, too
    const auto& given = node.arguments[static_cast<size_t>(*mean)];
    if (given.kind == Kind::constant && given.value.isNone()) return;
  }
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const auto& name = schema.arguments()[i].name();
    const auto& given = node.arguments[i];
    if (given.kind != Kind::constant) continue;
    const bool is_flag = name == "train" || name == "training" || name == "use_input_stats";
    if (is_flag && given.value.isBool()) {
      const bool is_on = given.value.toBool();
      ++(is_on ? calls.on : calls.off);
      if (is_on) node.eval_arguments.emplace_back(i, false);
    } else if (name == "dropout_p" && given.value.isDouble()) {
      node.eval_arguments.emplace_back(i, 0.0);
    }
  }
}

/// The line of Python that a node of the file stands for, "model.py:12"; empty where it has none.
std::string place_of(const Json& node) {
  const auto trace = Json::json_pointer("/metadata/stack_trace");
  if (!node.contains(trace) || !node[trace].is_string()) return {};
  std::string_view text = node[trace].get_ref<const std::string&>();
  constexpr std::string_view begin = "File \"", line = "\", line ";
  const auto at = text.rfind(begin);
  if (at == text.npos) return {};
  text.remove_prefix(at + begin.size());
  const auto path = text.substr(0, text.find(line));
  if (path.size() == text.size()) return {};
  const auto number = text.substr(path.size() + line.size());
  return shown(format("{}:{}", path.substr(path.rfind('/') + 1), number.substr(0, number.find(','))));
}

constexpr size_t kMostNodes = 1'000'000;
constexpr int kMostNested = 8;
constexpr std::string_view kOperators = "torch.ops.", kHigherOrder = "torch.ops.higher_order.";

const std::map<std::string, Node::Kind> kHigherOrderKinds = {
    {"cond", Node::Kind::branch},
    {"wrap_with_set_grad_enabled", Node::Kind::set_grad},
    {"wrap_with_autocast", Node::Kind::autocast},
    {"tag_activation_checkpoint", Node::Kind::nested},
    {"wrap", Node::Kind::nested}};

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
    free_after_last_read();
    return std::move(graph_);
  }

 private:
  int add_input(const Json& json) {
    const auto [kind, value] = only_field(json);
    if (kind == "as_tensor") return names_.add(text_at(value, "name"), SlotType::tensor);
    if (is_symbol(kind)) return names_.add(text_at(value, "as_name"), held_by(kind));
    if (kind == "as_custom_obj") throw Refusal("the graph takes a TorchBind object, which is not supported");
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
      throw Refusal("it does not return what the graph expects");
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
    node.only_in_training = counts_batches(node, json);
    if (node.only_in_training) counters_.insert(text_at(only_field(json.at("outputs").at(0)).value, "name"));
    set_eval_mode(node, calls_);
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
      throw Refusal("a Python function that lockstep does not support",
                    "write that part of the model with operators of torch");
    }
    node.kind = Node::Kind::arithmetic;
    node.arithmetic = found->run;
    for (const auto& input : json.at("inputs"))
      node.arguments.push_back(read_argument(input.at("arg"), names_));
    if (node.arguments.size() != found->arguments)
      throw Refusal(format("it takes {} arguments", found->arguments));
    add_outputs(node, json.at("outputs"));
    if (node.outputs.size() != 1 || node.outputs[0] < 0) throw Refusal("it returns one number");
  }

  void add_higher_order(Node& node, const Json& json) {
    const auto name = node.target.substr(kHigherOrder.size());
    const auto found = kHigherOrderKinds.find(name);
    if (found == kHigherOrderKinds.end()) {
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
        node.outputs.push_back(names_.add(text_at(value, "name"), SlotType::tensor));
      } else if (kind == "as_tensors") {
        node.gives_list = true;
        for (const auto& tensor : value)
          node.outputs.push_back(names_.add(text_at(tensor, "name"), SlotType::tensor));
      } else if (is_symbol(kind)) {
        node.outputs.push_back(names_.add(only_field(value).value.get<std::string>(), held_by(kind)));
      } else if (kind == "as_none" || kind == "as_int" || kind == "as_bool" || kind == "as_float") {
        node.outputs.push_back(-1);
      } else {
        throw Refusal("it returns a value of the kind " + shown(kind));
      }
    }
    if (node.gives_list && json.size() != 1) throw Refusal("it returns a list and another value");
  }

  static bool is_symbol(const std::string& kind) {
    return kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool";
  }

  static SlotType held_by(const std::string& kind) {
    return kind == "as_sym_int"     ? SlotType::integer
           : kind == "as_sym_float" ? SlotType::real
                                    : SlotType::truth;
  }

  /// Frees each value after the last node that reads it, except the outputs.
  void free_after_last_read() {
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

}  // namespace lockstep::exported
