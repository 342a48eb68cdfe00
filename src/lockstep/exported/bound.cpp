#include "lockstep/exported/bound.h"

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "lockstep/base/format.h"
#include "lockstep/exported/archive.h"

namespace lockstep::exported {
namespace {

/// Python's tree of modules: the one that holds "layers.0.weight" is at layers.0.
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

const at::Tensor& tensor_of(const ExportedProgram& program, const std::string& name) {
  const auto weight = program.weights.find(name);
  return weight == program.weights.end() ? program.constants.at(name) : weight->second;
}

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

void register_all(Bound& bound, torch::nn::Module& root, StateNames& names) {
  Modules modules(root);
  std::map<const at::TensorImpl*, std::string> first;
  for (const auto& input : bound.program.signature.inputs) {
    if (is_given(input)) {
      bound.tensors.emplace_back();
      continue;
    }
    bound.tensors.push_back(tensor_of(bound.program, input.name));
    if (!is_module_tensor(input)) continue;
    const auto& tensor = bound.tensors.back();
    const auto [seen, is_new] = first.emplace(tensor.unsafeGetTensorImpl(), input.name);
    if (is_new)
      add(input, tensor, modules);
    else if (input.saved && seen->second != input.name)
      names.tied.emplace_back(input.name, seen->second);
    if (is_new && !input.saved) names.unsaved.push_back(input.name);
  }
}

[[noreturn]] void refuse_other(const std::string& what, const ExportedProgram& program) {
  throw InputError(format("the model for evaluation is another one: {}", what), program.path,
                   "export both from one model: after train(), and after eval()");
}

}  // namespace

Bound bind(ExportedProgram program, torch::nn::Module& root, StateNames& names) {
  Bound bound{std::move(program), {}};
  refusing(bound.program.path, [&] { register_all(bound, root, names); });
  // the tensors live in the module now
  bound.program.weights.clear();
  bound.program.constants.clear();
  return bound;
}

Bound bind_like(ExportedProgram program, const Bound& train) {
  std::map<std::string, at::Tensor> trained;
  for (size_t i = 0; i < train.tensors.size(); ++i) {
    const auto& input = train.program.signature.inputs[i];
    if (is_module_tensor(input)) trained[input.name] = train.tensors[i];
  }
  Bound bound{std::move(program), {}};
  for (const auto& input : bound.program.signature.inputs) {
    bound.tensors.emplace_back();
    if (is_given(input)) continue;
    const auto& own = tensor_of(bound.program, input.name);
    bound.tensors.back() = own;
    if (!is_module_tensor(input)) continue;
    const auto found = trained.extract(input.name);
    if (found.empty()) refuse_other("only it has " + shown(input.name), bound.program);
    if (found.mapped().sizes() != own.sizes() || found.mapped().scalar_type() != own.scalar_type())
      refuse_other(shown(input.name) + " has another shape or dtype", bound.program);
    bound.tensors.back() = found.mapped();
  }
  if (!trained.empty()) refuse_other("it lacks " + shown(trained.begin()->first), bound.program);
  bound.program.weights.clear();
  bound.program.constants.clear();
  return bound;
}

void move_constants(Bound& bound, at::Device device) {
  for (size_t i = 0; i < bound.tensors.size(); ++i) {
    if (bound.program.signature.inputs[i].kind == Input::Kind::constant_tensor)
      bound.tensors[i] = bound.tensors[i].to(device);
  }
}

}  // namespace lockstep::exported
