#include "lockstep/models/torchscript.h"

#include <torch/script.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/paths.h"
#include "lockstep/models/model.h"

namespace lockstep {
namespace {

constexpr const char* kExport = "export it in Python with torch.jit.script(model).save(\"model.pt\")";

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

torch::jit::Module load_script(const std::string& path) {
  if (path.empty()) throw InputError("model.name is torchscript but model.path is empty", "", kExport);
  const base::RegularFile file(path, "the TorchScript model", kExport);
  try {
    return torch::jit::load(path, torch::kCPU);
  } catch (const std::exception& error) {
    throw InputError("not a TorchScript module that this libtorch reads: " + first_line(error.what()), path,
                     kExport);
  }
}

// The same tensors, under the same names, where torch::nn looks for them.
void mirror(const torch::jit::Module& script, torch::nn::Module& into) {
  for (const auto& parameter : script.named_parameters(/*recurse=*/false))
    into.register_parameter(parameter.name, parameter.value, parameter.value.requires_grad());
  for (const auto& buffer : script.named_buffers(/*recurse=*/false))
    into.register_buffer(buffer.name, buffer.value);
  for (const auto& child : script.named_children()) {
    auto module = std::make_shared<torch::nn::Module>(child.name);
    mirror(child.value, *module);
    into.register_module(child.name, module);
  }
}

}  // namespace

TorchScriptNet::TorchScriptNet(const std::string& path) : path_(path), script_(load_script(path)) {
  if (!script_.find_method("forward"))
    throw InputError("the TorchScript module has no forward", path, kExport);
  mirror(script_, *this);
  if (parameters().empty())
    throw InputError("the TorchScript module has no parameters to train (was it frozen?)", path, kExport);
}

torch::Tensor TorchScriptNet::forward(const torch::Tensor& input) {
  const auto output = script_.forward({input});
  if (!output.isTensor()) {
    throw InputError("the TorchScript module returns a " + output.tagKind() + ", not one tensor", path_,
                     "let its forward return one tensor, and export it again");
  }
  return output.toTensor();
}

void TorchScriptNet::train(bool on) {
  torch::nn::Module::train(on);
  script_.train(on);
}

namespace {

std::shared_ptr<Net> make_script(const ModelRequest& wanted) {
  return std::make_shared<TorchScriptNet>(base::find_path(wanted.settings.path));
}

}  // namespace

LOCKSTEP_MODEL(torchscript, .help = "a model saved by torch.jit.save, in `path`", .reads = {"path"},
               .needs = {{"path", "set model.path to the file that torch.jit.save wrote"}},
               .make = make_script)

}  // namespace lockstep
