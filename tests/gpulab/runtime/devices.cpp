#include "devices.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <sstream>
#include <utility>

#include "../lab.h"
#include "settings.h"
#include "streams.h"

namespace pretended {
namespace {

constexpr int kDomain = 0x1ab;  // of the bus: one that no real machine has

thread_local int current = 0;
thread_local cudaError_t last_error = cudaSuccess;
std::atomic<bool> active[kMaxDevices];
std::atomic<int> failures[kMaxDevices];

std::vector<int> machine() {
  std::vector<int> all(static_cast<size_t>(std::clamp<long>(number("LAB_GPUS", 4), 0, kMaxDevices)));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// As nvidia-smi writes it: "GPU-1a010000-...".
std::string name_of(int gpu) {
  std::string name = "GPU-";
  const Uuid uuid = uuid_of(gpu);
  for (size_t i = 0; i < uuid.size(); ++i) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) name += '-';
    name += digits;
  }
  return name;
}

// By their numbers or their UUIDs. A list ends at its first invalid entry.
std::vector<int> visible(const std::vector<int>& all, const char* list) {
  if (!list) return all;
  std::vector<int> chosen;
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const auto found = std::find_if(all.begin(), all.end(), [&](int gpu) {
      return entry == name_of(gpu) || entry == std::to_string(gpu);
    });
    if (found == all.end()) break;
    chosen.push_back(*found);
  }
  return chosen;
}

cudaDeviceProp describe(int gpu) {
  cudaDeviceProp facts;
  std::memset(&facts, 0, sizeof facts);
  const std::string name = device_name();
  std::memcpy(facts.name, name.c_str(), name.size() + 1);
  const auto uuid = uuid_of(gpu);
  std::memcpy(facts.uuid.bytes, uuid.data(), uuid.size());
  facts.totalGlobalMem = total_bytes();
  facts.pciDomainID = kDomain;
  facts.pciBusID = gpu + 1;
  facts.major = 9;  // a small H100
  facts.multiProcessorCount = 132;
  facts.warpSize = 32;
  facts.regsPerBlock = facts.regsPerMultiprocessor = 65536;
  facts.maxThreadsPerBlock = 1024;
  facts.maxThreadsDim[0] = facts.maxThreadsDim[1] = 1024;
  facts.maxThreadsDim[2] = 64;
  facts.maxGridSize[0] = 2147483647;
  facts.maxGridSize[1] = facts.maxGridSize[2] = 65535;
  facts.maxThreadsPerMultiProcessor = 2048;
  facts.maxBlocksPerMultiProcessor = 32;
  facts.sharedMemPerBlock = 49152;
  facts.sharedMemPerBlockOptin = 232448;
  facts.sharedMemPerMultiprocessor = 233472;
  facts.totalConstMem = 65536;
  facts.l2CacheSize = 50 << 20;
  facts.memoryBusWidth = 5120;
  facts.textureAlignment = 512;
  facts.concurrentKernels = facts.unifiedAddressing = facts.canMapHostMemory = 1;
  facts.asyncEngineCount = 3;
  facts.streamPrioritiesSupported = facts.cooperativeLaunch = 1;
  return facts;
}

const std::map<int, int>& attributes() {
  static const std::map<int, int> all = {
      {cudaDevAttrComputeCapabilityMajor, 9},
      {cudaDevAttrComputeCapabilityMinor, 0},
      {cudaDevAttrMultiProcessorCount, 132},
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
      {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
      {cudaDevAttrMaxGridDimX, 2147483647},
      {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535},
      {cudaDevAttrMaxBlockDimX, 1024},
      {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxRegistersPerBlock, 65536},
      {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 233472},
      {cudaDevAttrL2CacheSize, 50 << 20},
      {cudaDevAttrGlobalMemoryBusWidth, 5120},
      {cudaDevAttrClockRate, 1980000},        // kHz
      {cudaDevAttrMemoryClockRate, 2619000},  // kHz
      {cudaDevAttrTextureAlignment, 512},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrCooperativeLaunch, 1},
      {cudaDevAttrPciDomainId, kDomain},
      {cudaDevAttrIntegrated, 0},
      {cudaDevAttrEccEnabled, 0},
      {cudaDevAttrManagedMemory, 0},
      {cudaDevAttrConcurrentManagedAccess, 0},
      {cudaDevAttrPageableMemoryAccess, 0},
      {cudaDevAttrMemoryPoolsSupported, 0},
  };
  return all;
}

// libtorch's first question: by then its own kernels are registered, and the laboratory's take their place.
void load_operators() {
  static std::atomic<bool> loaded{false};
  if (loaded || !::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD) || loaded.exchange(true)) return;
  Dl_info self;
  std::string folder;
  if (::dladdr(reinterpret_cast<void*>(&load_operators), &self) && std::strrchr(self.dli_fname, '/'))
    folder = std::string(self.dli_fname, std::strrchr(self.dli_fname, '/') + 1);
  if (!::dlopen((folder + "liblab_ops.so").c_str(), RTLD_NOW)) lab::say("%s", ::dlerror());
}

}  // namespace

const std::vector<int>& devices() {
  static const auto& seen = *new std::vector<int>(visible(machine(), std::getenv("CUDA_VISIBLE_DEVICES")));
  return seen;
}

std::string device_name() {
  return "Pretend GPU (CPU memory, lab only)";
}

Uuid uuid_of(int gpu) {
  Uuid uuid;
  uuid.fill(0x5a);
  uuid[0] = 0x1a;
  uuid[1] = static_cast<unsigned char>(1 + gpu);
  return uuid;
}

std::string bus_text(int gpu) {
  char text[32];
  std::snprintf(text, sizeof text, "%04X:%02X:00.0", static_cast<unsigned>(kDomain),
                static_cast<unsigned>(gpu + 1));
  return text;
}

size_t total_bytes() {
  static const auto bytes = static_cast<size_t>(number("LAB_GPU_MB", 4096)) << 20;
  return bytes;
}

bool has_driver() {
  static const bool value = !machine().empty();
  return value;
}

int use() {
  begin_use();
  if (const auto error = life_error()) return error;
  return device_count() == 0 ? cudaErrorNoDevice : cudaSuccess;
}

int ask_attribute(int* value, int attribute, int device) {
  if (const int error = use()) return error;
  if (!is_device(device)) return cudaErrorInvalidDevice;
  if (attribute == cudaDevAttrPciBusId) {
    *value = devices()[static_cast<size_t>(device)] + 1;
    return cudaSuccess;
  }
  const auto known = attributes().find(attribute);
  if (known == attributes().end()) {
    lab::say("not imitated: device attribute %d", attribute);
    return cudaErrorNotSupported;
  }
  *value = known->second;
  return cudaSuccess;
}

int this_device() {
  return current;
}

void set_this_device(int device) {
  current = device;
}

bool is_active(int device) {
  return active[device];
}

void activate(int device) {
  active[device] = true;
}

cudaError_t give(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t state_of(int device) {
  if (const int error = use()) return static_cast<cudaError_t>(error);
  return static_cast<cudaError_t>(failures[device].load());
}

cudaError_t enter() {
  if (const auto error = state_of(current)) return error;
  activate(current);
  return cudaSuccess;
}

}  // namespace pretended

using namespace pretended;

namespace lab {

int current_device() {
  return current;
}

void fail_device(int device, cudaError_t error) {
  failures[device] = error;
}

void perhaps_fail(int device) {
  static const long after = number("LAB_FAIL_AFTER_OPS", 0);
  static const bool here = after > 0 && fails_here();
  static std::atomic<long> ops{0};
  if (!here || ++ops != after) return;
  say("device %d fails, as asked", device);
  fail_device(device, cudaErrorLaunchFailure);
}

}  // namespace lab

extern "C" {

cudaError_t cudaPeekAtLastError() {
  if (last_error == cudaSuccess && failures[current] != 0) return state_of(current);
  return last_error;
}

// what stays is not forgotten
cudaError_t cudaGetLastError() {
  const auto error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* facts, int device) {
  if (const int error = use()) return give(static_cast<cudaError_t>(error));
  if (!is_device(device)) return give(cudaErrorInvalidDevice);
  *facts = describe(devices()[static_cast<size_t>(device)]);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return give(static_cast<cudaError_t>(ask_attribute(value, attribute, device)));
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer)) return give(cudaErrorInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  static auto& mutex = *new std::mutex;
  static auto& enabled = *new std::set<std::pair<int, int>>;
  if (const auto error = enter()) return give(error);
  if (!is_device(peer)) return give(cudaErrorInvalidDevice);
  if (peer == this_device()) return give(cudaErrorPeerAccessUnsupported);
  const std::lock_guard lock(mutex);
  return give(enabled.emplace(this_device(), peer).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}

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
