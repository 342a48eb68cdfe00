#pragma once
// Which device a rank computes on, decided before CUDA or libtorch is touched.

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/launch/identify.h"
#include "lockstep/launch/options.h"

namespace lockstep::launch {

struct GpuCount {
  int count = 0;
  std::string because;  // how they were counted
};

struct DeviceChoice {
  std::string name = "cpu";  // "cpu" or "cuda:N"
  int index = -1;            // N
  std::string because;
  std::string warning = {};
  std::vector<int> all = {};  // every GPU that this rank computes on
  bool is_cuda() const { return index >= 0; }
};

/// How many GPUs this process may use, from the driver (libcuda, loaded at run time), which respects
/// CUDA_VISIBLE_DEVICES and control groups. With an empty CUDA_VISIBLE_DEVICES the driver is not loaded.
GpuCount count_gpus(const Environment& environment);

/// Which of its GPUs a rank computes on, counted from 0; the first is the rank's device. Empty: one GPU.
using OwnGpus = std::vector<std::int64_t>;

/// wanted: auto, cpu or cuda. A rank with n GPUs (the largest number in `own`, plus one) uses those from n
/// times its local rank on. If it sees exactly n, it uses these: the scheduler has selected them. Throws
/// InputError if there are too few.
DeviceChoice choose_device(const Job& job, const std::string& wanted, const GpuCount& visible,
                           const OwnGpus& own = {});

/// More ranks than GPUs share them in blocks: of 5 ranks on 2 GPUs, the first three share one.
DeviceChoice choose_staged(const Job& job, const GpuCount& visible, const OwnGpus& own);

/// Shows whether two ranks share a GPU. The UUID is unique, also for each part of a divided GPU (MIG). The
/// address on the PCI bus is unique on a node, but the same for all parts.
struct GpuIdentity {
  std::string uuid, bus;  // empty if unknown
};
GpuIdentity identify_gpu(int index);

/// Whether this backend sums on CPUs.
bool sums_on_cpus(const std::string& backend);

/// Whether tensors on GPUs are summed in the CPU's memory, so that ranks may share a GPU: launch.device is
/// cuda and launch.backend is shared or gloo.
bool is_staged(const LaunchOptions& options);

/// The same from all keys. A backend or an algorithm that sums on CPUs makes `auto` a CPU, with a warning if
/// there are GPUs. With `cuda`, it is staged, or an InputError (mpi, an algorithm).
DeviceChoice choose_device(const Job& job, const LaunchOptions& options, const Environment& environment,
                           const OwnGpus& own = {});

}  // namespace lockstep::launch
