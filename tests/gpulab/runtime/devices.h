#pragma once
// The GPUs that this process sees, in its order, for the runtime and the driver, and their calls' errors.

#include <cuda_runtime_api.h>

#include <array>
#include <string>
#include <vector>

namespace pretended {

using Uuid = std::array<unsigned char, 16>;

constexpr int kMaxDevices = 16;

/// What CUDA_VISIBLE_DEVICES leaves of the machine's LAB_GPUS, by their numbers on the bus. Read once, at the
/// first question.
const std::vector<int>& devices();
inline int device_count() {
  return static_cast<int>(devices().size());
}
inline bool is_device(int index) {
  return index >= 0 && index < device_count();
}

std::string device_name();
Uuid uuid_of(int gpu);
/// As CUDA writes it: "01AB:01:00.0".
std::string bus_text(int gpu);
/// Of each device: LAB_GPU_MB.
size_t total_bytes();

/// Whether the machine has a driver at all: LAB_GPUS=0 has none.
bool has_driver();
/// The code of the failure that keeps this process from any GPU, or 0; to ask is a use.
int use();
/// By CUDA's number of it; 0, or an error's code.
int ask_attribute(int* value, int attribute, int device);

/// Of this thread.
int this_device();
void set_this_device(int device);
/// The process has a context on it.
bool is_active(int device);
void activate(int device);

/// Keeps an error for cudaGetLastError(), and hands it on.
cudaError_t give(cudaError_t error);
/// Why no call on the device can succeed: none is there, it failed for good, or the process may not use it.
cudaError_t state_of(int device);
/// The same of this thread's device, on which the process has a context from now on.
cudaError_t enter();

}  // namespace pretended
