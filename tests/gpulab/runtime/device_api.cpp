#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "../lab.h"
#include "context.h"
#include "devices.h"
#include "settings.h"

using namespace pretended;

namespace {

// libtorch's first question: by then its own kernels are registered, and the laboratory's take their place.
void load_operators() {
  static std::atomic<bool> loaded{false};
  if (loaded || text("LAB_NO_OPS") || !::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD)) return;
  if (loaded.exchange(true)) return;
  Dl_info self;
  std::string folder;
  if (::dladdr(reinterpret_cast<void*>(&load_operators), &self) && std::strrchr(self.dli_fname, '/'))
    folder = std::string(self.dli_fname, std::strrchr(self.dli_fname, '/') + 1);
  if (!::dlopen((folder + "liblab_ops.so").c_str(), RTLD_NOW)) lab::say("%s", ::dlerror());
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  load_operators();
  *count = 0;
  if (const int error = use()) return give(static_cast<cudaError_t>(error));
  *count = device_count();
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (const int error = use()) return give(static_cast<cudaError_t>(error));
  *device = this_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (const int error = use()) return give(static_cast<cudaError_t>(error));
  if (!is_device(device)) return give(cudaErrorInvalidDevice);
  set_this_device(device);
  activate(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (!is_device(device)) return give(cudaErrorInvalidDevice);
  const std::string bus = bus_text(devices()[static_cast<size_t>(device)]);
  if (!text || static_cast<int>(bus.size()) >= length) return give(cudaErrorInvalidValue);
  std::memcpy(text, bus.c_str(), bus.size() + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* bus) {
  for (*device = 0; *device < device_count(); ++*device)
    if (bus_text(devices()[static_cast<size_t>(*device)]) == bus) return cudaSuccess;
  return give(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = has_driver() ? CUDART_VERSION : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaProfilerStart() {
  return cudaSuccess;
}
cudaError_t cudaProfilerStop() {
  return cudaSuccess;
}

}  // extern "C"
