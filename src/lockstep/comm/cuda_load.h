#pragma once
// Loading the CUDA plug-in, for code that is to stay free of torch's headers.

#include <string>

namespace lockstep::comm {

/// Loads the plug-in (see cuda_plugin.h) first thing in a program. Throws where it cannot.
void load_cuda();
/// How many GPUs this process sees; loads the plug-in.
int cuda_device_count();

}  // namespace lockstep::comm
