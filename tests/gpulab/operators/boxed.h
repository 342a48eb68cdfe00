#pragma once
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/operator_name.h>
#include <ATen/core/stack.h>
#include <cuda_runtime_api.h>

#include <string>
#include <utility>
#include <vector>

// The kernel that stands for each of CUDA's: it runs the CPU's on the same memory.

namespace lab {

/// Now, when the stream has done what it had; while it is captured, now and at each replay; with
/// LAB_STRICT=1, when the stream gets there, and now on copies, to learn the shapes.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// For an operator that cannot be imitated.
void refuse(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// The stream that is current on a device.
cudaStream_t current_stream(int device);

/// To be called when the host waits for a stream: an error while the stream is captured.
void host_waits(cudaStream_t stream);

// Kernels of CUDA's key, to be put into the dispatcher.

using Kernels = std::vector<std::pair<c10::OperatorName, c10::KernelFunction>>;

/// A function as a kernel of aten::NAME.
template <class Function>
void add_kernel(Kernels& kernels, const char* name, const char* overload, Function* function) {
  kernels.emplace_back(c10::OperatorName(std::string("aten::") + name, overload),
                       c10::KernelFunction::makeFromUnboxedRuntimeFunction(function));
}

/// Copies between devices, and to and from the host; and new memory.
void add_memory(Kernels& kernels);
// Operators that only CUDA has, by formula in operators that both have.
void add_batch_norm(Kernels& kernels);
void add_dropout(Kernels& kernels);

}  // namespace lab
