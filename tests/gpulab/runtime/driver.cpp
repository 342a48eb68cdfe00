// The pretended driver, libcuda.so.1: it knows the pretended runtime's devices, and refuses the rest.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "../lab.h"
#include "devices.h"
#include "streams.h"

using namespace pretended;

namespace {

std::atomic<bool> initialized{false};

CUresult code(int error) {
  return static_cast<CUresult>(error);
}

// CUDA's runtime initializes the driver, too.
CUresult why_not() {
  if (!initialized && !in_use()) return CUDA_ERROR_NOT_INITIALIZED;
  return code(use());
}

CUresult why_not(CUdevice device) {
  if (const auto error = why_not()) return error;
  return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

int of(CUdevice device) {
  return devices()[static_cast<size_t>(device)];
}

// A device's one context is named by its number.
CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(device) + 1);
}
int device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(context)) - 1;
}

CUresult give_text(const std::string& from, char* to, int length) {
  if (!to || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  to[from.copy(to, static_cast<size_t>(length) - 1)] = '\0';
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) {
  const auto error = code(has_driver() ? use() : cudaErrorNoDevice);
  if (!error) initialized = true;
  return error;
}

CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (const auto error = why_not()) return error;
  *count = device_count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int index) {
  if (const auto error = why_not(index)) return error;
  *device = index;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* text, int length, CUdevice device) {
  if (const auto error = why_not(device)) return error;
  return give_text(device_name(), text, length);
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (const auto error = why_not(device)) return error;
  const Uuid own = uuid_of(of(device));
  std::memcpy(uuid->bytes, own.data(), own.size());
  return CUDA_SUCCESS;
}
#undef cuDeviceGetUuid
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  if (const auto error = why_not(device)) return error;
  return give_text(bus_text(of(device)), text, length);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  if (const auto error = why_not(device)) return error;
  *bytes = total_bytes();
  return CUDA_SUCCESS;
}

// The runtime's numbers of attributes are the driver's.
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (const auto error = why_not(device)) return error;
  return code(ask_attribute(value, attribute, device));
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (const auto error = why_not(device)) return error;
  *flags = 0;
  *active = is_active(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const auto error = why_not(device)) return error;
  *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return why_not(device);
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  if (const auto error = why_not()) return error;
  const int device = lab::current_device();
  *context = is_active(device) ? context_of(device) : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (const auto error = why_not()) return error;
  return context ? code(cudaSetDevice(device_of(context))) : CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  if (const auto error = why_not()) return error;
  *device = lab::current_device();
  return CUDA_SUCCESS;
}

// The driver has nothing to log.
CUresult cuLogsRegisterCallback(CUlogsCallback, void*, CUlogsCallbackHandle* callback) {
  if (callback) *callback = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle) {
  return CUDA_SUCCESS;
}

// The driver's codes are the runtime's.
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = cudaGetErrorName(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

}  // extern "C"
