#pragma once
// What a process has on each device, and the errors of its calls.

#include <cuda_runtime_api.h>

namespace pretended {

/// Of this thread.
int this_device();
void set_this_device(int device);

bool is_active(int device);
void activate(int device);

/// Keeps an error for cudaGetLastError(), and hands it on.
cudaError_t give(cudaError_t error);
/// Why no call on the device can succeed: none is there, it failed for good, or the process may not use it.
cudaError_t state_of(int device);
/// The same of this thread's device, on which the process has a context from now on.
cudaError_t enter();

}  // namespace pretended
