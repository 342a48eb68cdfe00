// What a device says of itself: a small H100.
#include <algorithm>
#include <cstring>
#include <optional>

#include "../lab.h"
#include "context.h"
#include "devices.h"

using namespace pretended;

namespace {

void describe_identity(cudaDeviceProp& facts, const Device& device) {
  const std::string name = device_name(device);
  std::memcpy(facts.name, name.c_str(), name.size() + 1);
  const auto uuid = uuid_of(device);
  std::memcpy(facts.uuid.bytes, uuid.data(), uuid.size());
  facts.totalGlobalMem = total_bytes();
  facts.pciDomainID = kDomain;
  facts.pciBusID = bus_of(device);
  facts.major = kMajor;
  facts.minor = kMinor;
}

void describe_processors(cudaDeviceProp& facts) {
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
}

void describe_memory(cudaDeviceProp& facts) {
  facts.sharedMemPerBlock = 49152;
  facts.sharedMemPerBlockOptin = 232448;
  facts.sharedMemPerMultiprocessor = 233472;
  facts.totalConstMem = 65536;
  facts.l2CacheSize = 50 << 20;
  facts.memoryBusWidth = 5120;
  facts.textureAlignment = 512;
}

void describe_abilities(cudaDeviceProp& facts) {
  facts.concurrentKernels = facts.unifiedAddressing = facts.canMapHostMemory = 1;
  facts.asyncEngineCount = 3;
  facts.streamPrioritiesSupported = facts.cooperativeLaunch = 1;
}

cudaDeviceProp describe(const Device& device) {
  cudaDeviceProp facts;
  std::memset(&facts, 0, sizeof facts);
  describe_identity(facts, device);
  describe_processors(facts);
  describe_memory(facts);
  describe_abilities(facts);
  return facts;
}

std::optional<int> attribute_of(const cudaDeviceProp& facts, cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return facts.major;
    case cudaDevAttrComputeCapabilityMinor:
      return facts.minor;
    case cudaDevAttrMultiProcessorCount:
      return facts.multiProcessorCount;
    case cudaDevAttrMaxThreadsPerBlock:
      return facts.maxThreadsPerBlock;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return facts.maxThreadsPerMultiProcessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return facts.maxBlocksPerMultiProcessor;
    case cudaDevAttrMaxGridDimX:
      return facts.maxGridSize[0];
    case cudaDevAttrMaxGridDimY:
      return facts.maxGridSize[1];
    case cudaDevAttrMaxGridDimZ:
      return facts.maxGridSize[2];
    case cudaDevAttrMaxBlockDimX:
      return facts.maxThreadsDim[0];
    case cudaDevAttrMaxBlockDimY:
      return facts.maxThreadsDim[1];
    case cudaDevAttrMaxBlockDimZ:
      return facts.maxThreadsDim[2];
    case cudaDevAttrWarpSize:
      return facts.warpSize;
    case cudaDevAttrMaxRegistersPerBlock:
      return facts.regsPerBlock;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return facts.regsPerMultiprocessor;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return static_cast<int>(facts.sharedMemPerBlock);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(facts.sharedMemPerBlockOptin);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(facts.sharedMemPerMultiprocessor);
    case cudaDevAttrTotalConstantMemory:
      return static_cast<int>(facts.totalConstMem);
    case cudaDevAttrL2CacheSize:
      return facts.l2CacheSize;
    case cudaDevAttrGlobalMemoryBusWidth:
      return facts.memoryBusWidth;
    case cudaDevAttrClockRate:
      return 1980000;  // kHz
    case cudaDevAttrMemoryClockRate:
      return 2619000;  // kHz
    case cudaDevAttrTextureAlignment:
      return static_cast<int>(facts.textureAlignment);
    case cudaDevAttrAsyncEngineCount:
      return facts.asyncEngineCount;
    case cudaDevAttrConcurrentKernels:
      return facts.concurrentKernels;
    case cudaDevAttrUnifiedAddressing:
      return facts.unifiedAddressing;
    case cudaDevAttrCanMapHostMemory:
      return facts.canMapHostMemory;
    case cudaDevAttrStreamPrioritiesSupported:
      return facts.streamPrioritiesSupported;
    case cudaDevAttrCooperativeLaunch:
      return facts.cooperativeLaunch;
    case cudaDevAttrPciDomainId:
      return facts.pciDomainID;
    case cudaDevAttrPciBusId:
      return facts.pciBusID;
    case cudaDevAttrPciDeviceId:
      return facts.pciDeviceID;
    case cudaDevAttrIntegrated:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrComputeMode:
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrMemoryPoolsSupported:
      return 0;
    default:
      return std::nullopt;
  }
}

}  // namespace

namespace pretended {

int ask_attribute(int* value, int attribute, int device) {
  if (const int error = use()) return error;
  if (!is_device(device)) return cudaErrorInvalidDevice;
  const auto known =
      attribute_of(describe(devices()[static_cast<size_t>(device)]), static_cast<cudaDeviceAttr>(attribute));
  if (!known) {
    lab::say("not imitated: device attribute %d", attribute);
    return cudaErrorNotSupported;
  }
  *value = *known;
  return cudaSuccess;
}

}  // namespace pretended

extern "C" {

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* facts, int device) {
  if (const int error = use()) return give(static_cast<cudaError_t>(error));
  if (!is_device(device)) return give(cudaErrorInvalidDevice);
  *facts = describe(devices()[static_cast<size_t>(device)]);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return give(static_cast<cudaError_t>(ask_attribute(value, attribute, device)));
}

}  // extern "C"
