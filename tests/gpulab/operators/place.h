#pragma once
// Where a call runs: its device, the stream that is current there, and in which manner.
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <cuda_runtime_api.h>

#include <string>

namespace lab {

struct Place {
  int device = 0;
  cudaStream_t stream = nullptr;
  bool captured = false;  // the stream is being captured
  bool late = false;      // LAB_STRICT: the call is made when the stream gets there
};

/// The stream that is current on a device.
cudaStream_t current_stream(int device);

/// Throws what libtorch throws when the tensors are on several devices.
int device_of_call(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments);

/// Operators whose result the host waits for: not in a capture, and not late.
bool waits_for_host(const std::string& name, const torch::jit::Stack& arguments);

/// To be called when the host waits for a stream: an error while the stream is captured, and a word where
/// torch.cuda.set_sync_debug_mode asks for one.
void host_waits(cudaStream_t stream);

}  // namespace lab
