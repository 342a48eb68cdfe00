#include "lockstep/kernels/fast_kernels.h"

#include <dlfcn.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/kernels/conv_pool_relu.h"

namespace lockstep::kernels {
namespace {

constexpr const char* kFile = "liblockstep_fast.so";
constexpr const char* kOneBuild = "install lockstep and its plug-ins from one build";

const FastKernels& load() {
  const auto path = base::find_beside(kFile);
  if (path.empty())
    throw InputError("the fast kernels are not installed",
                     format("looked for {}", base::join(base::places_beside(kFile), ", ")),
                     "build them with `cmake --build build/release --target lockstep_fast`, or set "
                     "train.kernels to exact");
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw InputError(format("cannot load the fast kernels: {}", ::dlerror()), path, kOneBuild);
  using Table = const FastKernels* (*)();
  const auto table = reinterpret_cast<Table>(::dlsym(library, kFastTableSymbol));
  if (table && table()->version == kFastTableVersion) return *table();
  throw InputError("the fast kernels belong to another version of lockstep", path, kOneBuild);
}

}  // namespace

const FastKernels& fast_kernels() {
  static const FastKernels& table = load();
  return table;
}

}  // namespace lockstep::kernels

namespace lockstep {

at::Tensor conv_pool_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return kernels::fast_kernels().conv_pool_relu(x, weight, bias);
}

}  // namespace lockstep
