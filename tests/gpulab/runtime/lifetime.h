#pragma once
// From the first use of a GPU to the end of the process, and what a fork changes.

#include <cuda_runtime_api.h>

namespace pretended {

/// The process uses the GPUs from now on: a child that it forks later may not.
void begin_use();
bool in_use();
/// A stream's thread begins: when the process ends, it gets a moment for its work, and stops.
void stop_at_exit();
/// cudaErrorInitializationError in a child of a process that had used a GPU; cudaErrorCudartUnloading when
/// the process ends and its streams have been given up.
cudaError_t life_error();
/// Streams do not begin anything any more, and nobody waits for them.
bool ended();

}  // namespace pretended
