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

/// How many GPUs this process may use. Asks the driver (libcuda, opened at run time), which obeys
/// CUDA_VISIBLE_DEVICES and control groups; an empty CUDA_VISIBLE_DEVICES answers without it.
GpuCount count_gpus(const Environment& environment);

/// Which of its own GPUs a rank computes on, counted from 0; the first is the rank's device. None: one GPU.
using OwnGpus = std::vector<std::int64_t>;

/// wanted: auto, cpu or cuda. A rank that has n GPUs (the largest number of `own`, and one) takes those from
/// n times its local rank on. Where it sees n they are its own whatever its local rank: the scheduler
/// narrowed them down. Throws InputError, naming the rank and what it saw, where there are too few.
DeviceChoice choose_device(const Job& job, const std::string& wanted, const GpuCount& visible,
                           const OwnGpus& own = {});

/// Where ranks may share GPUs, and outnumber them, they do so in blocks: of 5 on 2 the first three have one.
DeviceChoice choose_staged(const Job& job, const GpuCount& visible, const OwnGpus& own);

/// By it two ranks find out that they share a GPU. The UUID is the same wherever it is seen from, and another
/// for each part of a divided one (MIG); the place on the PCI bus is its node's, and the same for all parts.
struct GpuIdentity {
  std::string uuid, bus;  // empty where the driver does not tell
};
GpuIdentity identify_gpu(int index);

/// Whether this backend sums on CPUs.
bool sums_on_cpus(const std::string& backend);

/// Whether tensors on GPUs are summed through the CPUs' memory, where ranks may share a GPU: launch.device is
/// cuda, and launch.backend shared or gloo.
bool is_staged(const LaunchOptions& options);

/// The same of all keys: what sums on CPUs (such a backend, an algorithm of launch.allreduce) makes `auto` a
/// CPU, with a warning where there are GPUs. With `cuda` it is staged, where ranks share GPUs block by block
/// if they outnumber them, or an InputError (mpi, an algorithm).
DeviceChoice choose_device(const Job& job, const LaunchOptions& options, const Environment& environment,
                           const OwnGpus& own = {});

}  // namespace lockstep::launch
