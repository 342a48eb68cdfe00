#pragma once
// Which device a rank computes on, decided before CUDA or libtorch is touched.

#include <string>

#include "lockstep/launch/identify.h"

namespace lockstep::launch {

struct GpuCount {
  int count = 0;
  std::string because;  // who counted
};

struct DeviceChoice {
  std::string name = "cpu";  // "cpu" or "cuda:N"
  int index = -1;            // N
  std::string because;
  bool is_cuda() const { return index >= 0; }
};

/// How many GPUs this process may use. Asks the driver (libcuda, opened at run time), which obeys
/// CUDA_VISIBLE_DEVICES and control groups; an empty CUDA_VISIBLE_DEVICES answers without it.
GpuCount count_gpus(const Environment& environment);

/// wanted: auto, cpu or cuda. One visible GPU is ours whatever our local rank: the scheduler narrowed it
/// down. Throws InputError, naming the rank and what it saw, where there are too few.
DeviceChoice choose_device(const Job& job, const std::string& wanted, const GpuCount& visible);

/// The GPU's own name, wherever it is seen from: by it two ranks find out that they share one. Empty where
/// the driver does not tell.
std::string gpu_uuid(int index);

/// Counts only where the answer matters.
DeviceChoice choose_device(const Job& job, const std::string& wanted, const Environment& environment);

}  // namespace lockstep::launch
