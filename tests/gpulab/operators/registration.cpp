// Puts the lab's kernels in the place of CUDA's when this library is loaded. libtorch_cuda's own must be
// registered by then: the pretended runtime loads it at the first question about devices.
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/codegen/fuser/interface.h>

#include <set>
#include <string>

#include "boxed.h"

namespace lab {
namespace {

using c10::DispatchKey;
using c10::KernelFunction;

/// CUDA's own kernels that only allocate, look at a tensor's shape, or mark memory for its allocator.
bool is_kept(const c10::OperatorName& name) {
  static const std::string those =
      " aten::empty.memory_format aten::empty_strided aten::as_strided aten::view aten::view.dtype "
      "aten::_reshape_alias aten::record_stream aten::set_ aten::set_.source_Storage "
      "aten::set_.source_Storage_storage_offset aten::set_.source_Tensor aten::resize_ aten::unfold "
      "aten::_efficientzerotensor aten::is_set_to aten::view_as_real aten::view_as_complex "
      "aten::_to_copy aten::is_pinned aten::_pin_memory ";
  return those.find(" " + c10::toString(name) + " ") != std::string::npos;
}

bool runs_on_cpu(const c10::OperatorHandle& op) {
  for (const auto key :
       {DispatchKey::CPU, DispatchKey::CompositeExplicitAutograd,
        DispatchKey::CompositeExplicitAutogradNonFunctional, DispatchKey::CompositeImplicitAutograd}) {
    if (op.hasKernelForDispatchKey(key)) return true;
  }
  return false;
}

class Registration {
 public:
  void put(const c10::OperatorName& name, KernelFunction kernel) {
    handles_.push_back(
        c10::Dispatcher::singleton().registerImpl(name, DispatchKey::CUDA, std::move(kernel), std::nullopt,
                                                  /*inferred_function_schema=*/nullptr, "gpulab"));
  }
  void put(const Kernels& kernels) {
    for (const auto& [name, kernel] : kernels) put(name, kernel);
  }

 private:
  std::vector<c10::RegistrationHandleRAII> handles_;  // never destroyed: CUDA's kernels would come back
};

void put_boxed_kernels(Registration& registration, const std::set<std::string>& by_formula) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getRegistrationsForDispatchKey(DispatchKey::CUDA)) {
    if (name.name.rfind("aten::", 0) != 0 || is_kept(name)) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema() || by_formula.count(c10::toString(name)) > 0) continue;
    registration.put(name, runs_on_cpu(*op) ? KernelFunction::makeFromBoxedFunction<&run_on_cpu>()
                                            : KernelFunction::makeFromBoxedFunction<&refuse>());
  }
}

int64_t choose_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>&, double, bool, std::optional<double>, bool) {
  return static_cast<int64_t>(at::SDPBackend::math);
}

Kernels kernels_by_formula() {
  Kernels kernels;
  add_kernel(kernels, "_fused_sdp_choice", "", &choose_attention);
  add_memory(kernels);
  add_batch_norm(kernels);
  add_dropout(kernels);
  return kernels;
}

/// The dispatcher warns of each kernel that is replaced.
struct Mute : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

bool put_all() {
  Mute mute;
  const c10::WarningUtils::WarningHandlerGuard quiet(&mute);
  auto* registration = new Registration;
  const Kernels formulas = kernels_by_formula();
  std::set<std::string> names;
  for (const auto& [name, kernel] : formulas) names.insert(c10::toString(name));
  put_boxed_kernels(*registration, names);
  registration->put(formulas);
  // these choose a library of CUDA's inside of one kernel
  registration->put({"aten::convolution", ""}, KernelFunction::makeFromBoxedFunction<&run_on_cpu>());
  registration->put({"aten::_convolution", ""}, KernelFunction::makeFromBoxedFunction<&run_on_cpu>());
  at::globalContext().setUserEnabledCuDNN(false);
  at::globalContext().setSDPUseFlash(false);
  at::globalContext().setSDPUseMemEfficient(false);
  at::globalContext().setSDPUseCuDNN(false);
  torch::jit::overrideCanFuseOnGPU(false);  // TorchScript would have kernels compiled
  return true;
}

const bool done = put_all();

}  // namespace
}  // namespace lab
