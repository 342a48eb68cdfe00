#pragma once
// What NCCL needs of the container that it runs in, as far as it can be seen from inside.

#include <cstdint>
#include <string>

#include "lockstep/launch/device.h"

namespace lockstep::train {

/// How large /dev/shm is; 0 where there is none.
int64_t shared_memory_bytes();

/// "/dev/shm holds 64 MB, ...": what to do about it, or that it is enough.
std::string say_shared_memory(int64_t bytes);

/// InputError where the container sees no GPU, with what else is amiss.
void require_container_for_nccl(const launch::GpuCount& gpus, int64_t shared_memory);

}  // namespace lockstep::train
