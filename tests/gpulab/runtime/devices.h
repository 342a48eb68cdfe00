#pragma once
// The devices that this process sees, in its order, for the runtime and the driver alike.

#include "inventory.h"

namespace pretended {

/// Read once, at the first question.
const std::vector<Device>& devices();
inline int device_count() {
  return static_cast<int>(devices().size());
}
inline bool is_device(int index) {
  return index >= 0 && index < device_count();
}

/// Whether the machine has a driver at all: LAB_GPUS=0 has none.
bool has_driver();
/// The code of the failure that keeps this process from any GPU, or 0; to ask is a use.
int use();
/// By CUDA's number of it; 0, or an error's code.
int ask_attribute(int* value, int attribute, int device);

constexpr int kMajor = 9, kMinor = 0;
std::string device_name(const Device& device);
size_t total_bytes();

}  // namespace pretended
