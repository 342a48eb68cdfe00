// Kernels are known by their names, and never run: to launch one is an error that says which. And how
// libtorch gets at the driver's functions, and what of the runtime there is not here.
#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>

#include "../lab.h"
#include "devices.h"

using namespace pretended;

namespace {

struct Kernels {
  std::mutex mutex;
  std::unordered_map<const void*, const char*> names;  // of the host's function
};

Kernels& kernels() {
  static auto& all = *new Kernels;
  return all;
}

std::string name_of(const void* function) {
  const std::lock_guard lock(kernels().mutex);
  const auto found = kernels().names.find(function);
  if (found == kernels().names.end()) return "a kernel";
  int status = 0;
  char* plain = abi::__cxa_demangle(found->second, nullptr, nullptr, &status);
  std::string name = plain ? plain : found->second;
  std::free(plain);
  return name.substr(0, 300);
}

cudaError_t launch(const void* function) {
  lab::say("kernel launched, and the laboratory has none: %s", name_of(function).c_str());
  return give(cudaErrorNotSupported);
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
  const std::lock_guard lock(kernels().mutex);
  kernels().names[host] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) {
  return 1;
}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, CUstream_st*) {
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = *block = dim3{1, 1, 1};
  *shared = 0;
  *static_cast<void**>(stream) = nullptr;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return launch(kernel);
}
cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void**, size_t, cudaStream_t) {
  return launch(function);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* function, void**) {
  return launch(function);
}

// What is asked before a launch, so that the launch says its name.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* facts, const void*) {
  std::memset(facts, 0, sizeof *facts);
  facts->maxThreadsPerBlock = 1024;
  facts->binaryVersion = facts->ptxVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                   int threads, size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

}  // extern "C"

// How libtorch gets at the driver's functions.

namespace {

// For what the pretended driver has not.
int refuse_any() {
  lab::say("not imitated: a function of the driver");
  return cudaErrorNotSupported;
}

void* find(const char* symbol) {
  static void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY);
  if (!driver) lab::say("the driver is not there: %s", ::dlerror());
  return driver ? ::dlsym(driver, symbol) : nullptr;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult* status) {
  *function = find((std::string(symbol) + "_v2").c_str());
  if (!*function) *function = find(symbol);
  if (!*function) *function = reinterpret_cast<void*>(&refuse_any);
  if (status) *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

}  // extern "C"

// Each says its name, and is an error. CUDA's header declares them with other signatures, so the assembler
// gives them their names.
#define NOT_IMITATED(name)                               \
  extern "C" cudaError_t lab_no_##name() __asm__(#name); \
  extern "C" cudaError_t lab_no_##name() {               \
    lab::say("not imitated: %s", #name);                 \
    return pretended::give(cudaErrorNotSupported);       \
  }

NOT_IMITATED(cudaDeviceGetByPCIBusId)
NOT_IMITATED(cudaDeviceGetDefaultMemPool)
NOT_IMITATED(cudaDeviceGetGraphMemAttribute)
NOT_IMITATED(cudaDeviceSetGraphMemAttribute)
NOT_IMITATED(cudaFreeAsync)
NOT_IMITATED(cudaGetDriverEntryPoint)
NOT_IMITATED(cudaGetSymbolAddress)
NOT_IMITATED(cudaGraphAddNode)
NOT_IMITATED(cudaGraphConditionalHandleCreate)
NOT_IMITATED(cudaGraphDebugDotPrint)
NOT_IMITATED(cudaGraphNodeGetDependencies)
NOT_IMITATED(cudaGraphRetainUserObject)
NOT_IMITATED(cudaIpcCloseMemHandle)
NOT_IMITATED(cudaIpcGetEventHandle)
NOT_IMITATED(cudaIpcGetMemHandle)
NOT_IMITATED(cudaIpcOpenEventHandle)
NOT_IMITATED(cudaIpcOpenMemHandle)
NOT_IMITATED(cudaKernelSetAttributeForDevice)
NOT_IMITATED(cudaLaunchCooperativeKernel)
NOT_IMITATED(cudaLaunchHostFunc)
NOT_IMITATED(cudaLibraryGetGlobal)
NOT_IMITATED(cudaLibraryGetKernel)
NOT_IMITATED(cudaLibraryGetKernelCount)
NOT_IMITATED(cudaLibraryGetManaged)
NOT_IMITATED(cudaLibraryGetUnifiedFunction)
NOT_IMITATED(cudaLibraryLoadData)
NOT_IMITATED(cudaLibraryLoadFromFile)
NOT_IMITATED(cudaLibraryUnload)
NOT_IMITATED(cudaMallocAsync)
NOT_IMITATED(cudaMallocManaged)
NOT_IMITATED(cudaMemPoolGetAttribute)
NOT_IMITATED(cudaMemPoolSetAccess)
NOT_IMITATED(cudaMemPoolSetAttribute)
NOT_IMITATED(cudaMemPoolTrimTo)
NOT_IMITATED(cudaMemcpy2DAsync)
NOT_IMITATED(cudaMemcpyToSymbol)
NOT_IMITATED(cudaStreamBeginCaptureToGraph)
NOT_IMITATED(cudaStreamGetDevice)
NOT_IMITATED(cudaStreamGetFlags)
NOT_IMITATED(cudaStreamGetId)
NOT_IMITATED(cudaStreamGetPriority)
NOT_IMITATED(cudaStreamUpdateCaptureDependencies)
NOT_IMITATED(cudaUserObjectCreate)
NOT_IMITATED(cudaUserObjectRelease)
NOT_IMITATED(cudaUserObjectRetain)
