// The CUDA half's one door: the table that comm/cuda_plugin.h describes.
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

const comm::CudaTable kTable = {
    comm::kCudaTableVersion, device_count, device_name, set_device, synchronize, make_nccl, make_step_graph};

}  // namespace
}  // namespace lockstep::cuda

extern "C" __attribute__((visibility("default"))) const lockstep::comm::CudaTable* lockstep_cuda_table() {
  lockstep::cuda::require_same(lockstep::cuda::own_headers(), lockstep::cuda::libtorchs_headers());
  return &lockstep::cuda::kTable;
}
