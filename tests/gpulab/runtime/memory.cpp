// Each device's memory is a range of this process's addresses, made at its first use.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "../lab.h"
#include "capture.h"
#include "devices.h"
#include "settings.h"
#include "streams.h"

namespace pretended {
namespace {

constexpr size_t kRange = size_t{1} << 36;      // of addresses, a device
constexpr size_t kAlignment = size_t{1} << 21;  // of an allocation
constexpr size_t kGrain = 512;                  // of its length
constexpr size_t kPoisoned = size_t{64} << 20;  // at most: more would be slow
constexpr unsigned char kPoison = 0xff;         // NaN in each floating-point type

struct Memory {
  std::mutex mutex;
  std::atomic<char*> base{nullptr};
  std::map<size_t, size_t> used;  // offset: length
  size_t taken = 0;
};

std::array<Memory, kMaxDevices>& memories() {
  static auto& all = *new std::array<Memory, kMaxDevices>;
  return all;
}

Memory& of(int device) {
  return memories()[static_cast<size_t>(device)];
}

size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

char* range_of(Memory& memory) {
  if (char* base = memory.base) return base;
  void* got =
      ::mmap(nullptr, kRange, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) {
    std::perror("[gpulab] no addresses for a device's memory");
    std::abort();
  }
  return memory.base = static_cast<char*>(got);
}

// The first gap that is long enough.
size_t gap_for(const Memory& memory, size_t bytes) {
  size_t offset = kAlignment;
  for (const auto& [at, length] : memory.used) {
    if (at >= offset + bytes) break;
    offset = round_up(at + length, kAlignment);
  }
  return offset;
}

/// nullptr when LAB_GPU_MB, or the range, is used up.
void* take(int device, size_t bytes) {
  Memory& memory = of(device);
  const std::lock_guard lock(memory.mutex);
  const size_t left = total_bytes() - memory.taken;
  if (bytes > left || round_up(bytes, kGrain) > left) return nullptr;
  bytes = round_up(bytes, kGrain);
  const size_t offset = gap_for(memory, bytes);
  if (offset + bytes > kRange) return nullptr;
  char* at = range_of(memory) + offset;
  memory.used[offset] = bytes;
  memory.taken += bytes;
  if (bytes <= kPoisoned) std::memset(at, kPoison, bytes);
  return at;
}

/// False for what is no allocation's beginning.
bool give_back(int device, void* pointer) {
  Memory& memory = of(device);
  const std::lock_guard lock(memory.mutex);
  const auto found = memory.used.find(static_cast<size_t>(static_cast<char*>(pointer) - memory.base));
  if (found == memory.used.end()) return false;
  ::madvise(pointer, found->second, MADV_DONTNEED);
  memory.taken -= found->second;
  memory.used.erase(found);
  return true;
}

/// The page-locked memory of the host, which streams read and write when they get there.
struct Pins {
  std::mutex mutex;
  std::map<const char*, size_t> ranges;
};
Pins& pins() {
  static auto& all = *new Pins;
  return all;
}

void pin(const void* pointer, size_t bytes) {
  const std::lock_guard lock(pins().mutex);
  pins().ranges[static_cast<const char*>(pointer)] = bytes;
}

/// False for what is not the beginning of a pinned range.
bool unpin(const void* pointer) {
  const std::lock_guard lock(pins().mutex);
  return pins().ranges.erase(static_cast<const char*>(pointer)) > 0;
}

}  // namespace
}  // namespace pretended

using namespace pretended;

namespace lab {

int device_of(const void* pointer) {
  const auto& all = pretended::memories();
  for (int device = 0; device < pretended::kMaxDevices; ++device) {
    const char* base = all[static_cast<size_t>(device)].base;
    if (base && pointer >= base && pointer < base + pretended::kRange) return device;
  }
  return -1;
}

bool pinned(const void* pointer) {
  const std::lock_guard lock(pins().mutex);
  auto found = pins().ranges.upper_bound(static_cast<const char*>(pointer));
  if (found == pins().ranges.begin()) return false;
  --found;
  return pointer < found->first + found->second;
}

}  // namespace lab

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (const auto error = unsafe("cudaMalloc")) return give(error);
  if (const auto error = enter()) return give(error);
  *pointer = bytes > 0 ? take(this_device(), bytes) : nullptr;
  if (bytes == 0) return cudaSuccess;
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
  return give(give_back(device, pointer) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  if (const auto error = enter()) return give(error);
  *total = total_bytes();
  Memory& memory = of(this_device());
  const std::lock_guard lock(memory.mutex);
  *available = *total - memory.taken;
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
