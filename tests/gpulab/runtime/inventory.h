#pragma once
// The GPUs of the pretended machine. Each has a place on the bus and a UUID. With LAB_MIG=1 each is divided
// in two slices, which have UUIDs of their own and the bus id of their GPU.

#include <array>
#include <string>
#include <vector>

namespace pretended {

using Uuid = std::array<unsigned char, 16>;

/// What CUDA can count as a device: a GPU, or a slice of one.
struct Device {
  int gpu = 0;     // in the order of the bus
  int slice = -1;  // of a divided GPU
  bool operator==(const Device&) const = default;
};

constexpr int kMaxDevices = 16;
constexpr int kSlices = 2;      // of a divided GPU
constexpr int kDomain = 0x1ab;  // of the bus: one that no real machine has

/// LAB_GPUS devices (4), of which LAB_MIG=1 makes slices.
std::vector<Device> machine();

Uuid uuid_of_gpu(int gpu);
/// A slice's own, or its GPU's.
Uuid uuid_of(const Device& device);
/// As nvidia-smi writes it: "GPU-1a010000-..." or "MIG-3c010000-...".
std::string name_of(const Device& device);
std::string name_of_gpu(int gpu);
/// The number of its bus.
int bus_of(const Device& device);
/// As CUDA writes it: "01AB:01:00.0".
std::string bus_text(const Device& device);

}  // namespace pretended
