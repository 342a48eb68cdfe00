#pragma once
// Which devices a process sees, and in which order: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.

#include <vector>

#include "inventory.h"

namespace pretended {

/// The numbers that CUDA gives to the GPUs: by the bus, or the fastest before the others.
std::vector<int> numbered(const std::vector<Device>& machine, bool by_bus, int fastest);

/// What CUDA_VISIBLE_DEVICES leaves of the machine; nullptr is a variable that is not set. A list ends at its
/// first invalid entry, holds one kind of name (numbers, GPU-UUID, MIG-UUID), and is empty when an entry is
/// there twice. Of the slices of divided GPUs a process sees one.
std::vector<Device> visible(const std::vector<Device>& machine, const std::vector<int>& numbers,
                            const char* list);

}  // namespace pretended
