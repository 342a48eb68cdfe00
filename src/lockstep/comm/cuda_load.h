#pragma once
// Loads the CUDA plug-in, for code that does not include torch's headers.

#include <string>

namespace lockstep::comm {

/// Loads the plug-in (see cuda_plugin.h) at the start of a program. Throws if that fails.
void load_cuda();
/// How many GPUs this process sees; loads the plug-in.
int cuda_device_count();

}  // namespace lockstep::comm
