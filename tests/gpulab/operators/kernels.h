#pragma once
// Kernels of CUDA's key, to be put into the dispatcher.
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/operator_name.h>

#include <utility>
#include <vector>

namespace lab {

using Kernels = std::vector<std::pair<c10::OperatorName, c10::KernelFunction>>;

/// A function as a kernel of aten::NAME.
template <class Function>
void add_kernel(Kernels& kernels, const char* name, const char* overload, Function* function) {
  kernels.emplace_back(c10::OperatorName(std::string("aten::") + name, overload),
                       c10::KernelFunction::makeFromUnboxedRuntimeFunction(function));
}

void add_allocations(Kernels& kernels);

// Operators that only CUDA has, by formula in operators that both have.
void add_batch_norm(Kernels& kernels);
void add_rnn_cells(Kernels& kernels);
void add_rms_norm(Kernels& kernels);
void add_dropout(Kernels& kernels);
void add_matmul_of_type(Kernels& kernels);

}  // namespace lab
