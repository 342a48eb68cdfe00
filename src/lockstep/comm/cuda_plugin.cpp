#include "lockstep/comm/cuda_plugin.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/cuda_load.h"

namespace lockstep::comm {
namespace {

constexpr const char* kFile = "liblockstep_cuda.so";

using TableFunction = const CudaTable* (*)();

void* open_plugin() {
  const char* wanted = std::getenv("LOCKSTEP_CUDA_PLUGIN");
  const std::string path = wanted ? wanted : base::find_beside(kFile);
  if (!std::filesystem::exists(path)) {
    const auto places = wanted ? wanted : base::join(base::places_beside(kFile), ", ");
    throw Error("the device is a GPU, but lockstep's CUDA plug-in is not installed", "looked for " + places,
                "build with LOCKSTEP_CUDA=ON, or set launch.device to cpu")
        .of(Code::gpu);
  }
  if (void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  throw Error(format("cannot load the CUDA plug-in: {}", ::dlerror()), path,
              "check the driver of this node (nvidia-smi), and build with LOCKSTEP_CUDA=ON")
      .of(Code::gpu);
}

// libtorch caches its CUDA hooks when it first needs CUDA (a seed, a backward, pinned memory). If the plug-in
// is loaded later, the CPU's stubs remain.
void require_early() {
  if (at::detail::getCUDAHooks().hasCUDART()) return;
  throw Error("the CUDA plug-in was loaded too late: libtorch was already in use without CUDA",
              "loading liblockstep_cuda.so",
              "link lockstep::cuda, or create the Session before any other use of libtorch");
}

const CudaTable& load() {
  // already loaded if the program is linked to lockstep::cuda
  void* symbol = ::dlsym(RTLD_DEFAULT, kCudaTableSymbol);
  if (!symbol) symbol = ::dlsym(open_plugin(), kCudaTableSymbol);
  if (!symbol)
    throw InputError(
        format("{} has no {}: it belongs to another version of lockstep", kFile, kCudaTableSymbol), kFile,
        "install both from one build, and unset LOCKSTEP_CUDA_PLUGIN");
  const CudaTable* table = reinterpret_cast<TableFunction>(symbol)();
  if (table->version != kCudaTableVersion) {
    throw InputError(format("the CUDA plug-in belongs to another version of lockstep: {}, not {}",
                            table->version, kCudaTableVersion),
                     kFile, "install both from one build, and unset LOCKSTEP_CUDA_PLUGIN");
  }
  require_early();
  return *table;
}

}  // namespace

const CudaTable& cuda() {
  static const CudaTable& table = load();
  return table;
}

void load_cuda() {
  cuda();
}

int cuda_device_count() {
  return cuda().device_count();
}

}  // namespace lockstep::comm
