#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "../lab.h"
#include "capture.h"
#include "context.h"
#include "devices.h"
#include "memory.h"
#include "pins.h"
#include "settings.h"
#include "streams.h"

using namespace pretended;

namespace {

// LAB_OOM_AT=n or n,m: the calls of cudaMalloc that find no memory.
struct Shortage {
  long first = 0, last = 0;

  Shortage() {
    const char* wanted = text("LAB_OOM_AT");
    if (!wanted || !fails_here(/*otherwise=*/-1)) return;
    char* end = nullptr;
    first = last = std::strtol(wanted, &end, 10);
    if (*end == ',') last = std::strtol(end + 1, &end, 10);
    if (*end == '\0' && first > 0 && last >= first) return;
    lab::say("LAB_OOM_AT is a number of an allocation, or two (from,to), not %s", wanted);
    std::abort();
  }
  bool is_now() {
    const long call = ++calls_;
    return call >= first && call <= last;
  }

 private:
  std::atomic<long> calls_{0};
};

bool finds_no_memory() {
  static auto& shortage = *new Shortage;
  if (!shortage.is_now()) return false;
  lab::say("an allocation finds no memory, as asked");
  return true;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (const auto error = unsafe("cudaMalloc")) return give(error);
  if (const auto error = enter()) return give(error);
  lab::count("malloc");
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (!finds_no_memory()) *pointer = take(this_device(), bytes);
  return give(*pointer ? cudaSuccess : cudaErrorMemoryAllocation);
}

// As the real one, waits for the device.
cudaError_t cudaFree(void* pointer) {
  if (const auto error = enter()) return give(error);
  if (!pointer) return cudaSuccess;
  if (const auto error = unsafe("cudaFree")) return give(error);
  const int device = lab::device_of(pointer);
  if (device < 0) return give(cudaErrorInvalidValue);
  drain_device(device);
  if (const auto error = state_of(device)) return give(error);
  return give(give_back(pointer) ? cudaSuccess : cudaErrorInvalidValue);
}

// Orders more than it must.
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  return cudaMalloc(pointer, bytes);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) {
  return cudaFree(pointer);
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  if (const auto error = enter()) return give(error);
  *total = total_bytes();
  *available = free_bytes(this_device());
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  if (const auto error = unsafe("cudaHostAlloc")) return give(error);
  if (const auto error = enter()) return give(error);
  if (::posix_memalign(pointer, 4096, std::max<size_t>(bytes, 1)) != 0)
    return give(cudaErrorMemoryAllocation);
  pin(*pointer, bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

// Waits for who may read or write it.
cudaError_t cudaFreeHost(void* pointer) {
  if (!pointer) return cudaSuccess;
  if (const auto error = state_of(this_device())) return give(error);
  drain_device(-1);
  if (!unpin(pointer)) return give(cudaErrorInvalidValue);
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  if (const auto error = enter()) return give(error);
  if (lab::pinned(pointer)) return give(cudaErrorHostMemoryAlreadyRegistered);
  pin(pointer, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  return give(unpin(pointer) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* facts, const void* pointer) {
  if (const auto error = enter()) return give(error);
  *facts = {};
  const int device = lab::device_of(pointer);
  const bool host = device < 0 && lab::pinned(pointer);
  facts->type = device >= 0 ? cudaMemoryTypeDevice : host ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  facts->device = device >= 0 ? device : host ? this_device() : cudaInvalidDeviceId;
  if (device >= 0 || host) facts->devicePointer = const_cast<void*>(pointer);
  if (device < 0) facts->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

}  // extern "C"
