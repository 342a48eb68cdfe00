#pragma once
// The kernel that stands for each of CUDA's: it runs the CPU's on the same memory.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace lab {

/// Now, when the stream has done what it had; while it is captured, now and at each replay; with
/// LAB_STRICT=1, when the stream gets there, and now on copies, to learn the shapes.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// For an operator that cannot be imitated.
void refuse(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace lab
