// The CUDA half's one door: the table that comm/cuda_plugin.h describes.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/cuda/nccl.h"
#include "lockstep/cuda/nccl_headers.h"
#include "lockstep/cuda/step_graph.h"

namespace lockstep::cuda {
namespace {

int device_count() {
  return c10::cuda::device_count();
}

std::string device_name(int device) {
  cudaDeviceProp facts{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&facts, device));
  return facts.name;
}

void set_device(int device) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
}

void synchronize(int device) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  c10::cuda::device_synchronize();
}

std::int64_t peak_bytes(int device) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  return allocator::getDeviceStats(static_cast<c10::DeviceIndex>(device))
      .allocated_bytes[0]
      .peak;  // of all kinds
}

std::int64_t total_bytes(int device) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  std::size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(total);
}

const comm::CudaTable kTable = {.version = comm::kCudaTableVersion,
                                .device_count = device_count,
                                .device_name = device_name,
                                .set_device = set_device,
                                .synchronize = synchronize,
                                .make_nccl = make_nccl,
                                .make_step_graph = make_step_graph,
                                .peak_bytes = peak_bytes,
                                .total_bytes = total_bytes,
                                .record_hangs_in = record_hangs_in};

}  // namespace
}  // namespace lockstep::cuda

extern "C" __attribute__((visibility("default"))) const lockstep::comm::CudaTable* lockstep_cuda_table() {
  lockstep::cuda::require_same(lockstep::cuda::own_headers(), lockstep::cuda::libtorchs_headers());
  return &lockstep::cuda::kTable;
}
