#pragma once
// The CPU lacks some kernels for half precision that CUDA has: they are computed in float, and rounded.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace lab {

/// Runs the CPU's kernel; where it does not know float16 or bfloat16, in float.
void run_on_cpu_or_in_float(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace lab
