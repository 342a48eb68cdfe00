#pragma once
// Each device's memory is a range of this process's addresses, made at its first use.

#include <cstddef>

namespace pretended {

/// nullptr when LAB_GPU_MB, or the range, is used up.
void* take(int device, size_t bytes);
/// False for what is no allocation's beginning.
bool give_back(void* pointer);
size_t free_bytes(int device);

/// LAB_GUARD=1: whether the ranges may be touched.
void protect_memory(bool open);

}  // namespace pretended
