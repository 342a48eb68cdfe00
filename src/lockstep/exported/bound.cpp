#include "lockstep/exported/bound.h"

#include <torch/types.h>

#include <map>

#include "lockstep/base/format.h"
#include "lockstep/exported/refusing.h"

namespace lockstep::exported {
namespace {

// Python's tree of modules: the one that holds "layers.0.weight" is at layers.0. `leaf` becomes "weight".
torch::nn::Module& module_for(torch::nn::Module& root, const std::string& name, std::string& leaf) {
  auto* module = &root;
  size_t begin = 0;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
    const auto part = name.substr(begin, dot - begin);
    const auto children = module->named_children();
    const auto* child = children.find(part);
    module =
        child ? child->get() : module->register_module(part, std::make_shared<torch::nn::Module>(part)).get();
    begin = dot + 1;
  }
  leaf = name.substr(begin);
  return *module;
}

const at::Tensor& tensor_of(const Program& program, const std::string& name) {
  const auto weight = program.weights.find(name);
  return weight == program.weights.end() ? program.constants.at(name) : weight->second;
}

bool is_module_tensor(const Input& input) {
  return input.kind == Input::Kind::parameter || input.kind == Input::Kind::buffer;
}

void add(const Input& input, const at::Tensor& tensor, torch::nn::Module& root) {
  std::string leaf;
  auto& module = module_for(root, input.name, leaf);
  if (input.kind == Input::Kind::parameter)
    module.register_parameter(leaf, tensor, tensor.requires_grad());
  else
    module.register_buffer(leaf, tensor);
}

void register_all(Bound& bound, torch::nn::Module& root, StateNames& names) {
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
      add(input, tensor, root);
    else if (input.saved && seen->second != input.name)
      names.tied.emplace_back(input.name, seen->second);
    if (is_new && !input.saved) names.unsaved.push_back(input.name);
  }
}

}  // namespace

Bound bind(Program program, torch::nn::Module& root, StateNames& names) {
  Bound bound{std::move(program), {}};
  refusing(bound.program.path, [&] { register_all(bound, root, names); });
  // the tensors live in the module now
  bound.program.weights.clear();
  bound.program.constants.clear();
  return bound;
}

Bound bind_like(Program program, const Bound& train) {
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
    const auto found = trained.find(input.name);
    if (!is_module_tensor(input)) {
      bound.tensors.back() = own;
    } else if (found != trained.end() && found->second.sizes() == own.sizes() &&
               found->second.scalar_type() == own.scalar_type()) {
      bound.tensors.back() = found->second;
    } else {
      throw InputError(format("the model for evaluation has a tensor {} that the one for training has not",
                              shown(input.name)),
                       bound.program.path, "export both from one model: after train(), and after eval()");
    }
  }
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
