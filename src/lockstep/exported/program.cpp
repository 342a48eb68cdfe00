#include "lockstep/exported/program.h"

#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/exported/archive.h"

namespace lockstep::exported {
namespace {

// "Mul(Integer(2), Symbol('s31', positive=True))" as "Mul(2, s31)"; "s31" is how an old torch wrote it.
std::string symbol_in(std::string text) {
  for (const std::string_view begin : {"Symbol('", "Integer("}) {
    for (auto at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
      const auto from = at + begin.size();
      const auto close = text.find(')', from);
      const auto end = std::min(text.find('\'', from), close);
      if (close == std::string::npos) break;
      text.replace(at, close + 1 - at, text.substr(from, end - from));
    }
  }
  return shown(text);
}

TensorMeta meta_of(const Json& json) {
  TensorMeta meta;
  meta.dtype = scalar_type_of(json.at("dtype"));
  for (const auto& size : json.at("sizes")) {
    const auto [kind, value] = only_field(size);
    const bool fixed = kind == "as_int";
    meta.sizes.push_back(fixed ? std::optional(whole_number(value)) : std::nullopt);
    meta.symbols.push_back(fixed ? std::string() : symbol_in(text_at(value, "expr_str")));
  }
  return meta;
}

std::optional<TensorMeta> meta_of_value(const Json& graph, const std::string& name) {
  const auto& values = graph.at("tensor_values");
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : std::optional(meta_of(*found));
}

c10::IValue constant_of(const std::string& kind, const Json& value) {
  if (kind == "as_none") return {};
  if (kind == "as_int") return whole_number(value);
  if (kind == "as_float") return number_of(value);
  if (kind == "as_bool") return value.get<bool>();
  if (kind == "as_string") return value.get<std::string>();
  throw Refusal("an input is a constant of the kind " + shown(kind), "let forward take tensors and numbers");
}

Input constant_input(const std::string& name, const Field& field) {
  return {.kind = Input::Kind::constant,
          .name = name,
          .value = field.name == "as_none" ? "None" : shown(field.value.dump()),
          .fixed = constant_of(field.name, field.value)};
}

Input user_input(const Json& argument, const Json& graph) {
  const auto field = only_field(argument);
  const auto& [kind, value] = field;
  if (kind == "as_tensor") {
    const auto name = text_at(value, "name");
    return {.kind = Input::Kind::user, .name = name, .argument = name, .meta = meta_of_value(graph, name)};
  }
  if (kind != "as_sym_int") return constant_input({}, field);
  const auto name = text_at(value, "as_name");
  return {.kind = Input::Kind::user, .name = name, .argument = name, .value = "int"};
}

Input input_of(const Json& spec, const Json& graph) {
  const auto [kind, value] = only_field(spec);
  if (kind == "user_input") return user_input(value.at("arg"), graph);
  if (kind == "constant_input") return constant_input(text_at(value, "name"), only_field(value.at("value")));
  const bool is_parameter = kind == "parameter", is_buffer = kind == "buffer";
  if (!is_parameter && !is_buffer && kind != "tensor_constant")
    throw Refusal(format("the model takes an input of the kind {}", shown(kind)),
                  "only tensors, numbers and texts can be given to it");
  Input input{.kind = is_parameter ? Input::Kind::parameter
                      : is_buffer  ? Input::Kind::buffer
                                   : Input::Kind::constant_tensor,
              .name = text_at(value, (kind + "_name").c_str()),
              .argument = text_at(value.at("arg"), "name")};
  if (is_buffer) input.saved = value.value("persistent", true);
  return input;
}

Output output_of(const Json& spec, const Json& graph) {
  const auto [kind, value] = only_field(spec);
  std::string name;
  if (kind == "user_output") {
    const auto argument = only_field(value.at("arg"));
    if (argument.name != "as_tensor")
      return {.name = shown(argument.name.starts_with("as_") ? argument.name.substr(3) : argument.name)};
    name = text_at(argument.value, "name");
  } else if (kind == "loss_output") {
    name = text_at(value.at("arg"), "name");
  } else {
    throw Refusal(format("the model returns an output of the kind {}", shown(kind)),
                  "export it with torch.export.export, for training, and without run_decompositions()");
  }
  return {.name = name, .meta = meta_of_value(graph, name)};
}

int64_t bound(const Json& range, const char* key, int64_t otherwise) {
  const auto found = range.find(key);
  return found == range.end() || found->is_null() ? otherwise : whole_number(*found);
}

class Checker {
 public:
  Checker(const Signature& signature, const std::string& path) : signature_(signature), path_(path) {}

  void check(const Input& input, const c10::IValue& value) {
    if (input.kind == Input::Kind::constant) return check_constant(input, value);
    if (!input.meta) return check_number(input, value);
    if (!value.isTensor()) fail(input, format("is a {}", value.tagKind()), "give it a tensor");
    const auto& tensor = value.toTensor();
    const auto& [dtype, sizes, symbols] = *input.meta;
    if (tensor.scalar_type() != dtype)
      fail(input,
           format("is {}, but the model was exported for {}", c10::toString(tensor.scalar_type()),
                  c10::toString(dtype)),
           "export it with an input of this dtype");
    if (tensor.dim() != std::ssize(sizes))
      fail(input, format("has {} dimensions, but the model was exported for {}", tensor.dim(), sizes.size()),
           "export it with an input of the task's shape");
    for (int64_t i = 0; i < tensor.dim(); ++i) check_size(input, i, tensor.size(i));
  }

 private:
  // None stands for whatever the file has.
  void check_constant(const Input& input, const c10::IValue& value) const {
    if (value.isNone()) return;
    const bool numbers = value.isScalar() && input.fixed.isScalar();
    const bool same = numbers ? value.toScalar().toDouble() == input.fixed.toScalar().toDouble()
                              : value.tagKind() == input.fixed.tagKind() && value == input.fixed;
    if (!same) fail(input, "is fixed to " + input.value + " in the file", "give that, or None");
  }

  void check_number(const Input& input, const c10::IValue& value) {
    if (!value.isInt()) fail(input, format("is a {}", value.tagKind()), "give it an int");
    check_range(input, format("is {}", value.toInt()), input.name, value.toInt());
  }

  void check_size(const Input& input, int64_t dimension, int64_t size) {
    const auto at = static_cast<size_t>(dimension);
    const auto what = [&] { return format("has size {} in dimension {}", size, dimension); };
    if (const auto& fixed = input.meta->sizes[at]) {
      if (*fixed == size) return;
      fail(input, format("{}, but the model was exported only for {}", what(), *fixed),
           format("export it with that size free: dynamic_shapes=({{{}: torch.export.Dim.AUTO}},); if it "
                  "stays fixed, use Dim.DYNAMIC, which makes Python report the reason",
                  dimension));
    }
    const auto& symbol = input.meta->symbols[at];
    if (!signature_.ranges.contains(symbol)) return;  // an expression: the graph finds out
    if (const auto seen = seen_before(symbol, size); seen != size)
      fail(
          input,
          format("{}, but the model was exported with this size equal to another, which is {}", what(), seen),
          "export it with a separate Dim for that size");
    check_range(input, what(), symbol, size);
  }

  void check_range(const Input& input, const std::string& what, const std::string& symbol,
                   int64_t value) const {
    const auto range = signature_.ranges.find(symbol);
    if (range == signature_.ranges.end()) return;
    const auto [least, most] = range->second;
    if (value < least || value > most)
      fail(input, format("{}, but the model was exported for {} to {}", what, least, most),
           "export it with another range for that size");
  }

  /// The size that this symbol had at first. A model has few of them.
  int64_t seen_before(const std::string& symbol, int64_t size) {
    for (const auto& [name, seen] : seen_)
      if (*name == symbol) return seen;
    seen_.emplace_back(&symbol, size);
    return size;
  }

  [[noreturn]] void fail(const Input& input, const std::string& what, const std::string& hint) const {
    const auto name = input.name.empty() ? std::string("a constant") : "the input " + shown(input.name);
    throw InputError(format("{} {}", name, what), path_, hint);
  }

  const Signature& signature_;
  const std::string& path_;
  std::vector<std::pair<const std::string*, int64_t>> seen_;
};

}  // namespace

bool is_given(const Input& input) {
  return input.kind == Input::Kind::user || input.kind == Input::Kind::constant;
}

Signature read_signature(const Json& model) {
  const auto& module = model.at("graph_module");
  const auto& graph = module.at("graph");
  Signature signature;
  for (const auto& spec : module.at("signature").at("input_specs"))
    signature.inputs.push_back(input_of(spec, graph));
  for (size_t i = 0; i < signature.inputs.size(); ++i)
    if (is_given(signature.inputs[i])) signature.given.push_back(i);
  for (const auto& spec : module.at("signature").at("output_specs"))
    signature.outputs.push_back(output_of(spec, graph));
  for (const auto& [symbol, range] : model.at("range_constraints").items()) {
    // a least of 2 says that torch.export looked at no size of 0 or 1, not that the model cannot take them
    constexpr int64_t kSpecialised = 2;
    const auto least = bound(range, "min_val", 0);
    signature.ranges[shown(symbol)] = {least <= kSpecialised ? 0 : least,
                                       bound(range, "max_val", std::numeric_limits<int64_t>::max())};
  }
  return signature;
}

void check_inputs(const Signature& signature, const std::vector<c10::IValue>& given,
                  const std::string& path) {
  Checker checker(signature, path);
  for (size_t i = 0; i < given.size(); ++i) checker.check(signature.inputs[signature.given[i]], given[i]);
}

namespace {

constexpr const char* kModel = "models/model.json";

// The forms of the graph that are known: torch 2.9 writes 8.14, torch 2.15 writes 8.20.
constexpr int64_t kMajor = 8, kLeastMinor = 14, kMostMinor = 20;

void read_version(const Json& model, ExportedProgram& program) {
  const auto& version = model.at("schema_version");
  const auto major = whole_number(version.at("major")), minor = whole_number(version.at("minor"));
  program.schema = format("{}.{}", major, minor);
  if (const auto torch = model.find("torch_version"); torch != model.end() && torch->is_string())
    program.torch_version = shown(torch->get<std::string>());
  if (major != kMajor || minor < kLeastMinor) {
    throw Refusal(
        format("the graph has schema version {}{}; lockstep reads {}.{} to {}.x", program.schema,
               program.torch_version.empty() ? "" : " (torch " + program.torch_version + ")", kMajor,
               kLeastMinor, kMajor),
        std::string("with a torch between 2.9 and the one this lockstep is built with ") + kExportAgain);
  }
  program.is_newer = minor > kMostMinor;
}

std::set<std::string> counters_of(const Signature& signature) {
  std::set<std::string> found;
  for (const auto& input : signature.inputs) {
    if (input.kind == Input::Kind::buffer && input.name.ends_with("num_batches_tracked"))
      found.insert(input.argument);
  }
  return found;
}

void check_tensors(const ExportedProgram& program) {
  for (const auto& input : program.signature.inputs) {
    if (!is_given(input) && !program.weights.contains(input.name))
      throw Refusal(format("the file lacks the tensor {}", shown(input.name)));
  }
}

at::DeviceType home_of(const Json& graph, const Signature& signature) {
  for (const auto& input : signature.inputs) {
    if (input.kind != Input::Kind::parameter) continue;
    const auto& values = graph.at("tensor_values");
    const auto found = values.find(input.argument);
    return found == values.end() ? at::kCPU : device_of(found->at("device")).type();
  }
  return at::kCPU;
}

void read_graph(const Json& model, ExportedProgram& program) {
  read_version(model, program);
  program.signature = read_signature(model);
  program.home = home_of(model.at("graph_module").at("graph"), program.signature);
  program.graph =
      compile(model.at("graph_module").at("graph"), counters_of(program.signature), program.calls);
  if (program.signature.inputs.size() != program.graph.inputs.size() ||
      program.signature.outputs.size() != program.graph.outputs.size())
    throw Refusal("its signature belongs to another graph");
}

}  // namespace

ExportedProgram read_program(const std::string& path) {
  const Archive archive(path);
  ExportedProgram program;
  program.path = path;
  refusing(path, [&] {
    read_graph(archive.json(kModel), program);
    program.digest = archive.digest(kModel);
    program.weights = read_weights(archive);
    program.weights.merge(read_constants(archive));
    check_tensors(program);
  });
  return archive.whole(std::move(program));
}

ExportedProgram read_program(std::string_view model_json, const std::string& path) {
  ExportedProgram program;
  program.path = path;
  refusing(path, [&] { read_graph(base::parse_json(model_json), program); });
  return program;
}

namespace {

// Python's tree of modules: the one that holds "layers.0.weight" is at layers.0.
class Modules {
 public:
  explicit Modules(torch::nn::Module& root) : modules_{{std::string(), &root}} {}

  torch::nn::Module& at(const std::string& path) {
    if (const auto found = modules_.find(path); found != modules_.end()) return *found->second;
    const auto dot = path.rfind('.');
    auto& parent = at(dot == std::string::npos ? std::string() : path.substr(0, dot));
    const auto name = dot == std::string::npos ? path : path.substr(dot + 1);
    auto* made = parent.register_module(name, std::make_shared<torch::nn::Module>(name)).get();
    return *modules_.emplace(path, made).first->second;
  }

 private:
  std::unordered_map<std::string, torch::nn::Module*> modules_;
};

bool is_module_tensor(const Input& input) {
  return input.kind == Input::Kind::parameter || input.kind == Input::Kind::buffer;
}

void add(const Input& input, const at::Tensor& tensor, Modules& modules) {
  constexpr auto kMostDots = 100;
  if (std::count(input.name.begin(), input.name.end(), '.') > kMostDots)
    throw Refusal("a module is nested too deeply: " + shown(input.name));
  const auto dot = input.name.rfind('.');
  auto& module = modules.at(dot == std::string::npos ? std::string() : input.name.substr(0, dot));
  const auto leaf = input.name.substr(dot + 1);  // npos + 1 is 0
  if (input.kind == Input::Kind::parameter)
    module.register_parameter(leaf, tensor, tensor.requires_grad());
  else
    module.register_buffer(leaf, tensor);
}

[[noreturn]] void refuse_other(const std::string& what, const ExportedProgram& program) {
  throw InputError(format("the model for evaluation differs from the one for training: {}", what),
                   program.path, "export both from one model: after train(), and after eval()");
}

}  // namespace

void bind(ExportedProgram& program, torch::nn::Module& root, StateNames& names) {
  Modules modules(root);
  std::map<const at::TensorImpl*, std::string> first;
  refusing(program.path, [&] {
    for (const auto& input : program.signature.inputs) {
      auto& tensor = program.tensors.emplace_back();
      if (is_given(input)) continue;
      tensor = program.weights.at(input.name);
      if (!is_module_tensor(input)) continue;
      const auto [seen, is_new] = first.emplace(tensor.unsafeGetTensorImpl(), input.name);
      if (is_new)
        add(input, tensor, modules);
      else if (input.saved && seen->second != input.name)
        names.tied.emplace_back(input.name, seen->second);
      if (is_new && !input.saved) names.unsaved.push_back(input.name);
    }
  });
  program.weights.clear();
}

void bind_like(ExportedProgram& program, const ExportedProgram& train) {
  std::map<std::string, at::Tensor> trained;
  for (size_t i = 0; i < train.tensors.size(); ++i) {
    const auto& input = train.signature.inputs[i];
    if (is_module_tensor(input)) trained[input.name] = train.tensors[i];
  }
  for (const auto& input : program.signature.inputs) {
    auto& tensor = program.tensors.emplace_back();
    if (is_given(input)) continue;
    tensor = program.weights.at(input.name);
    if (!is_module_tensor(input)) continue;
    const auto found = trained.extract(input.name);
    if (found.empty()) refuse_other("only it has " + shown(input.name), program);
    if (found.mapped().sizes() != tensor.sizes() || found.mapped().scalar_type() != tensor.scalar_type())
      refuse_other(shown(input.name) + " has another shape or dtype", program);
    tensor = found.mapped();
  }
  if (!trained.empty()) refuse_other("it lacks " + shown(trained.begin()->first), program);
  program.weights.clear();
}

void move_constants(ExportedProgram& program, at::Device device) {
  for (size_t i = 0; i < program.tensors.size(); ++i) {
    if (program.signature.inputs[i].kind == Input::Kind::constant_tensor)
      program.tensors[i] = program.tensors[i].to(device);
  }
}

}  // namespace lockstep::exported
